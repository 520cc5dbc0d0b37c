-- Each server announces the highest feature level that it supports. Servers of versions that know no levels support 1.
alter table lakelog.server add column level integer not null default 1;

-- From level 2 on, every journal row has a nonce. Servers that write rows without one are refused: other versions of such a
-- row could not be told apart after a failover. The error is one that these servers report as temporary, so that their
-- callers go to another server.
alter function lakelog.journals_commit rename to journals_commit_without_nonces;

create function lakelog.journals_commit(
    p_groups bigint[], p_pids bigint[], p_versions bigint[], p_snapshots boolean[], p_bodies bytea[],
    p_not_before bigint[], p_not_after bigint[],
    d_parts integer[] default '{}', d_offsets bigint[] default '{}', d_epochs integer[] default '{}',
    d_deliveries integer[] default '{}', d_failures integer[] default '{}',
    d_reasons text[] default '{}', d_owners text[] default '{}', d_payloads bytea[] default '{}',
    out clock_ms bigint, out statuses smallint[]
)
    language plpgsql
as $$
declare
    v_level integer := (select feature_level from lakelog.installation);
begin
    if v_level > 1 then
        raise exception 'The installation has feature level %, which this version of Lakelog does not support. '
            'Install a newer version', v_level using errcode = 'read_only_sql_transaction';
    end if;
    select c.clock_ms, c.statuses into clock_ms, statuses
    from lakelog.journals_commit_without_nonces(
        p_groups, p_pids, p_versions, p_snapshots, p_bodies, p_not_before, p_not_after,
        d_parts, d_offsets, d_epochs, d_deliveries, d_failures, d_reasons, d_owners, d_payloads) c;
end
$$;

revoke all on function lakelog.journals_commit from public;
grant execute on function lakelog.journals_commit to lakelog_service;

-- Servers of versions that do not know the version of a topic change its settings without it. Others compare the version to
-- find out whether the topic changed.
create function lakelog.topic_version_raise() returns trigger
    language plpgsql
as $$
begin
    new.version := old.version + 1;
    return new;
end
$$;

create trigger topic_version before update of settings, cells on lakelog.topic
    for each row when (new.version = old.version) execute function lakelog.topic_version_raise();

revoke all on function lakelog.topic_version_raise from public;
