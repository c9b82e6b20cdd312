drop function predictions_before;
drop function prediction_points;
drop function pick_of;
drop function insert_alone;
drop table event_tallies;
drop table prediction_revisions;
drop table predictions;
