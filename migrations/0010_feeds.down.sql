drop table feed_teams;
drop table feeds;
