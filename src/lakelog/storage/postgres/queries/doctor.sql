-- settings_read: returns the settings that new sessions get, and where they are set
select name, reset_val, source, pending_restart from pg_settings
where name in ('fsync', 'full_page_writes', 'synchronous_commit', 'wal_level', 'max_wal_senders', 'max_connections',
    'superuser_reserved_connections', 'max_locks_per_transaction', 'max_prepared_transactions',
    'synchronous_standby_names');

-- clock_read: returns the time of the database
select clock_timestamp();

-- overview_read: returns values of the cluster and of this database
select current_database()::text as database, current_user::text as user,
       current_setting('server_version_num')::integer as version, current_setting('server_version') as version_text,
       (select count(*) from pg_stat_activity where backend_type = 'client backend') as connections,
       pg_has_role(current_user, 'pg_read_all_stats', 'member') as sees_all_sessions,
       to_regnamespace('lakelog_outbox') is not null as has_outbox;

-- xid_age_read: returns the database with the oldest transaction id; template0 is left to autovacuum
select datname::text as database, age(datfrozenxid) as age from pg_database
where datallowconn order by age(datfrozenxid) desc limit 1;

-- transaction_list: lists the oldest transactions of this database that hold a snapshot or a transaction id
select pid, coalesce(usename, '')::text as user, application_name as application,
       coalesce(host(client_addr), '') as address, coalesce(state, '') as state,
       extract(epoch from clock_timestamp() - xact_start)::float8 as seconds
from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'
  and xact_start is not null and (backend_xmin is not null or backend_xid is not null)
order by xact_start limit $1;

-- outbox_transaction_list: lists the oldest transactions that have written into the outbox and are open
select a.pid, coalesce(a.usename, '')::text as user, a.application_name as application,
       coalesce(host(a.client_addr), '') as address, coalesce(a.state, '') as state,
       extract(epoch from clock_timestamp() - a.xact_start)::float8 as seconds
from pg_stat_activity a
where a.pid <> pg_backend_pid() and a.xact_start is not null and exists (
    select from pg_locks l join pg_class c on c.oid = l.relation
    where l.pid = a.pid and l.granted and l.mode = 'RowExclusiveLock'
      and l.database = (select oid from pg_database where datname = current_database())
      and c.relnamespace = to_regnamespace('lakelog_outbox') and c.relkind in ('r', 'p'))
order by a.xact_start limit $1;

-- prepared_list: lists the oldest prepared transactions of this database
select gid as name, extract(epoch from clock_timestamp() - prepared)::float8 as seconds from pg_prepared_xacts
where database = current_database() order by prepared limit $1;

-- slot_list: lists the replication slots of the cluster, and the WAL that each holds
select slot_name::text as name, active as is_active, xmin is not null or catalog_xmin is not null as holds_rows,
       coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0)::bigint as held_bytes,
       coalesce(wal_status, '') as status
from pg_replication_slots order by held_bytes desc limit $1;

-- standby_list: lists the standbys that are connected now
select application_name as name, coalesce(state, '') as state, coalesce(sync_state, '') as sync_state,
       coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn), 0)::bigint as lag_bytes
from pg_stat_replication where state is distinct from 'backup' order by lag_bytes desc limit $1;

-- schema_read: returns the schema's version, and the identity and feature level of the installation
select (select max(version) from lakelog.migration) as migration, installation_id::text as installation, cell,
       feature_level as level
from lakelog.installation;
