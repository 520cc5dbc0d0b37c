-- Tracebacks of dead letters. A dead letter from before this migration, or without a traceback from its caller, has none.

alter table lakelog.dead_letter add column traceback text;

-- Writes entries like journals_commit, and the dead letters of the written entries. journals_commit keeps its parameters
-- for dead letters, for servers that run while this migration is applied.
create function lakelog.journals_commit_dead(
    p_groups bigint[], p_pids bigint[], p_versions bigint[], p_snapshots boolean[], p_bodies bytea[],
    p_not_before bigint[], p_not_after bigint[],
    d_parts integer[], d_offsets bigint[], d_epochs integer[], d_deliveries integer[], d_failures integer[],
    d_reasons text[], d_owners text[], d_payloads bytea[], d_tracebacks text[],
    out clock_ms bigint, out statuses smallint[]
)
    language plpgsql
as $$
declare
    v_at timestamptz := clock_timestamp();
begin
    select c.clock_ms, c.statuses into clock_ms, statuses
    from lakelog.journals_commit(
        p_groups, p_pids, p_versions, p_snapshots, p_bodies, p_not_before, p_not_after) c;
    insert into lakelog.dead_letter
        (group_id, pid, message_offset, epoch, at, deliveries, failures, reason, owner, payload, traceback)
    select p_groups[d.part], p_pids[d.part], d.message_offset, d.epoch, v_at,
           d.deliveries, d.failures, d.reason, d.owner, d.payload, d.traceback
    from unnest(d_parts, d_offsets, d_epochs, d_deliveries, d_failures, d_reasons, d_owners, d_payloads, d_tracebacks)
        as d (part, message_offset, epoch, deliveries, failures, reason, owner, payload, traceback)
    where statuses[d.part] = 0
    on conflict do nothing;
end
$$;

revoke all on function lakelog.journals_commit_dead from public;
grant execute on function lakelog.journals_commit_dead to lakelog_service;
