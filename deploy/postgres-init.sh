#!/usr/bin/env bash
# Creates the roles and databases when PostgreSQL starts with an empty data directory. The PostgreSQL image runs it
# once.
#
# matchday_owner owns the tables and migrates them. matchday_service runs the service with the privileges of
# matchday_app, and can neither change the schema nor modify append-only tables. Synapse has a separate role and
# database.
set -euo pipefail

psql -v ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname postgres \
  -v owner_password="$OWNER_PASSWORD" -v service_password="$SERVICE_PASSWORD" -v synapse_password="$SYNAPSE_PASSWORD" <<'SQL'
create role matchday_owner login password :'owner_password';
create role matchday_app nologin;
create role matchday_service login password :'service_password';
grant matchday_app to matchday_service;
create database matchday owner matchday_owner;
revoke connect on database matchday from public;
grant connect on database matchday to matchday_app;

create role synapse login password :'synapse_password';
-- Synapse requires the C collation.
create database synapse owner synapse encoding 'UTF8' lc_collate 'C' lc_ctype 'C' template template0;
revoke connect on database synapse from public;
SQL
