drop index user_teams_by_team;
drop table reminder_plans;
drop table reminders;
drop table push_subscriptions;
drop table notification_settings;
