drop table leases;
drop table outbox;

revoke select on _sqlx_migrations from matchday_app;
alter default privileges in schema public revoke usage, select on sequences from matchday_app;
alter default privileges in schema public revoke select, insert, update, delete on tables from matchday_app;
revoke usage on schema public from matchday_app;
-- The role is kept, because other databases of the server may use it and other roles may be members.
