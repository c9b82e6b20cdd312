drop table sessions;
drop table users;
