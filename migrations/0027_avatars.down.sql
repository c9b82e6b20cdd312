drop table avatars;
