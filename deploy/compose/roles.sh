#!/bin/sh
# Runs once, when PostgreSQL creates its database: the role of the servers owns nothing.
set -eu
psql --set ON_ERROR_STOP=1 --set password="$SERVER_PASSWORD" \
  --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" <<'SQL'
CREATE ROLE lakelog_service NOLOGIN;
CREATE ROLE lakelog_server LOGIN PASSWORD :'password' IN ROLE lakelog_service;
SQL
