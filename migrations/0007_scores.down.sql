drop view result_points;
drop function score_scopes;
drop table score_retention;
drop table user_scores;
drop table score_lanes;
drop sequence score_repairs;
drop sequence score_writes;
drop table event_results;
