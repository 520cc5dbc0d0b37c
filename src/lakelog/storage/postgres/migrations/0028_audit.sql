-- Audit records: who changed what, and which calls were refused for a missing right. A change of the catalog and its record
-- are one transaction. Records of changes that are made in several databases are written as begun, and finished at the end.

create table lakelog.audit (
    number bigint generated always as identity primary key,
    environment_id bigint not null,
    at timestamptz not null,
    operation text not null,
    summary text not null,
    outcome text not null,
    actor_kind text not null,
    actor text not null,
    actor_name text not null,
    address text not null,
    request_id text not null,
    objects jsonb not null,
    given jsonb not null,
    before jsonb,
    after jsonb
);
create index audit_by_environment on lakelog.audit (environment_id, at, number);
create index audit_by_time on lakelog.audit (at);

-- Deletes some of the records that are older than 400 days. Only this function deletes records.
create function lakelog.audit_trim(p_rows integer) returns integer
    language sql security definer set search_path = pg_catalog, pg_temp
as $$
    with trimmed as (
        delete from lakelog.audit where ctid = any (array(
            select a.ctid from lakelog.audit a where a.at < now() - interval '400 days' order by a.at limit p_rows))
        returning 1
    )
    select count(*)::integer from trimmed
$$;

revoke all on lakelog.audit from public;
grant select, insert, update (outcome, after) on lakelog.audit to lakelog_service;
revoke all on function lakelog.audit_trim from public;
grant execute on function lakelog.audit_trim to lakelog_service;
