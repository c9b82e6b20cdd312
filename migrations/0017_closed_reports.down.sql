drop index reports_closed;
