drop table departures;
alter table users drop column deleted_at;
