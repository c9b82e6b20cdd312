drop table leases;
drop table outbox;
