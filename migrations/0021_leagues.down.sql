drop table league_removals;
drop table league_members;
drop table leagues;
