-- A nonce per journal row. After a failover that lost rows, version n can exist again with another content: a version
-- counts only together with its nonce. Rows of servers that do not send one have 0.

alter table lakelog.journal add column nonce bigint not null default 0;

-- Writes each entry that follows the journal's last row, by version and nonce, while the clock is within its bounds, with
-- its dead letters. Everything else is as in journals_commit, which servers of the previous version call.
create function lakelog.journals_write(
    p_groups bigint[], p_pids bigint[], p_versions bigint[], p_nonces bigint[], p_after_nonces bigint[],
    p_snapshots boolean[], p_bodies bytea[], p_not_before bigint[], p_not_after bigint[],
    d_parts integer[] default '{}', d_offsets bigint[] default '{}', d_epochs integer[] default '{}',
    d_deliveries integer[] default '{}', d_failures integer[] default '{}', d_reasons text[] default '{}',
    d_owners text[] default '{}', d_payloads bytea[] default '{}', d_tracebacks text[] default '{}',
    out clock_ms bigint, out statuses smallint[]
)
    language plpgsql
as $$
declare
    v_at timestamptz := clock_timestamp();
    v_ms bigint := lakelog.ms(v_at);
    v_until bigint;
begin
    with asked as materialized (
        select u.*, coalesce(n.snapshot_version, 0) as last_snapshot,
               case
                   when (coalesce(n.version, 0), coalesce(n.nonce, 0)) <> (u.version - 1, u.after_nonce) then 1
                   when v_ms between u.not_before and u.not_after then 0
                   else 2
               end::smallint as status
        from unnest(p_groups, p_pids, p_versions, p_nonces, p_after_nonces, p_snapshots, p_bodies, p_not_before, p_not_after)
            with ordinality
            as u (group_id, pid, version, nonce, after_nonce, snapshot, body, not_before, not_after, part)
        left join lateral (
            select j.version, j.nonce, j.snapshot_version from lakelog.journal j
            where j.group_id = u.group_id and j.pid = u.pid order by j.version desc limit 1
        ) n on true
    ), written as (
        insert into lakelog.journal as j (group_id, pid, version, nonce, snapshot_version, at, body)
        select a.group_id, a.pid, a.version, a.nonce,
               case when a.snapshot then a.version else a.last_snapshot end, v_at, a.body
        from asked a where a.status = 0
        on conflict do nothing
        returning j.group_id, j.pid
    )
    select array_agg(case when a.status = 0 and w.pid is null then 1::smallint else a.status end order by a.part),
           min(a.not_after) filter (where w.pid is not null)
    into statuses, v_until
    from asked a left join written w on w.group_id = a.group_id and w.pid = a.pid;

    clock_ms := lakelog.ms(clock_timestamp());
    if clock_ms > v_until then
        statuses := lakelog.journals_withdraw(p_groups, p_pids, p_versions, p_not_after, statuses, clock_ms);
    end if;
    if cardinality(d_parts) > 0 then
        insert into lakelog.dead_letter
            (group_id, pid, message_offset, epoch, at, deliveries, failures, reason, owner, payload, traceback)
        select p_groups[d.part], p_pids[d.part], d.message_offset, d.epoch, v_at,
               d.deliveries, d.failures, d.reason, d.owner, d.payload, d.traceback
        from unnest(
            d_parts, d_offsets, d_epochs, d_deliveries, d_failures, d_reasons, d_owners, d_payloads, d_tracebacks)
            as d (part, message_offset, epoch, deliveries, failures, reason, owner, payload, traceback)
        where statuses[d.part] = 0
        on conflict do nothing;
    end if;
end
$$;

revoke all on function lakelog.journals_write from public;
grant execute on function lakelog.journals_write to lakelog_service;
