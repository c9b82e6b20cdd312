drop table user_teams;
drop table events;
drop table teams;
drop table tournaments;
drop table sports;
drop extension pg_trgm;
