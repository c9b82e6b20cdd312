drop table webhook_endpoints;
