drop table user_teams;
drop table events;
drop table teams;
drop table tournaments;
drop table sports;
drop table rule_sets;
drop extension pg_trgm;
