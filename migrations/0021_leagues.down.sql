alter table notification_settings drop column league_ranks;
alter table rooms drop column league_id;
drop table league_notifications;
drop table league_removals;
drop table league_members;
drop table leagues;
