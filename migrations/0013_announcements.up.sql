-- Whether the bot announces the events of a match in its rooms.
alter table rooms add column announces boolean not null default true;
