drop function score_scopes;
drop table user_scores;
drop table score_lanes;
drop table event_results;
