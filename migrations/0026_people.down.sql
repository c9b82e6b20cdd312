drop table follow_counts, followers, follows;
alter table users drop constraint users_audiences;
alter table users drop constraint users_avatar_key;
alter table users
    drop column calibration_audience,
    drop column record_audience,
    drop column teams_audience,
    drop column shows_name,
    drop column avatar_key;
