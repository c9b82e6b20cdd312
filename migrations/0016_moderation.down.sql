alter table reports drop column erase_at;
drop table restricted_phones;
alter table restrictions drop column until;
alter table users drop column banned_until, drop column muted_until;
alter table departures drop column devices_due_at, drop column device_attempts, drop column chat_rooms;
