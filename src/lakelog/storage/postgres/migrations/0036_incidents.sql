-- Incidents: deliveries that did not end well, and the ends of messages that had one. They are written with the decision that
-- they belong to, and dropped by the day after 30 days. Dead letters get a fingerprint, by which they are clustered.

create table lakelog.incident (
    at_ms bigint not null,
    group_id bigint not null,
    pid bigint not null,
    message_offset bigint not null,
    epoch integer not null,
    kind smallint not null,
    deliveries integer not null,
    failures integer not null,
    owner text not null,
    leased_ms bigint not null,
    due_ms bigint,
    fingerprint bigint not null,
    left_out integer not null,
    reason text not null,
    traceback text
) partition by range (at_ms);
create index incident_by_message on lakelog.incident (pid, message_offset);
create index incident_by_group on lakelog.incident (group_id, at_ms);

-- Dead letters of older versions have no fingerprint.
alter table lakelog.dead_letter add column fingerprint bigint;
create index dead_letter_by_fingerprint on lakelog.dead_letter (group_id, pid, state, fingerprint, message_offset, epoch)
    include (at);

-- As before, with the table of incidents, whose times are milliseconds.
create or replace function lakelog.history_lengths(p_table text, out width bigint, out kept bigint)
    language sql immutable parallel safe
as $$
    select l.width, l.kept from (values
        ('sample_minute', 1440::bigint, 2 * 1440::bigint),
        ('sample_ten_minutes', 1440, 30 * 1440),
        ('sample_hour', 30 * 1440, 400 * 1440),
        ('incident', 86400000, 30 * 86400000::bigint)
    ) as l (name, width, kept) where l.name = p_table
$$;

-- Commits journal entries like lakelog.journals_write_once, with the fingerprints of dead letters and with incidents.
-- i_parts has the number of the entry of each incident. Incidents are lost, and nothing else, if their day has no table.
create function lakelog.journals_write_noted(
    p_groups bigint[], p_pids bigint[], p_versions bigint[], p_nonces bigint[], p_after_nonces bigint[],
    p_snapshots boolean[], p_bodies bytea[], p_not_before bigint[], p_not_after bigint[],
    d_parts integer[], d_offsets bigint[], d_epochs integer[], d_deliveries integer[], d_failures integer[], d_reasons text[],
    d_owners text[], d_payloads bytea[], d_tracebacks text[],
    o_parts integer[], o_incarnations bigint[], o_hashes bytea[],
    d_fingerprints bigint[],
    i_parts integer[], i_offsets bigint[], i_epochs integer[], i_kinds smallint[], i_deliveries integer[],
    i_failures integer[], i_owners text[], i_leased bigint[], i_due bigint[], i_fingerprints bigint[], i_left_out integer[],
    i_reasons text[], i_tracebacks text[],
    out clock_ms bigint, out statuses smallint[], out taken integer[]
)
    language plpgsql set plan_cache_mode = force_generic_plan
as $$
declare
    v_at timestamptz := clock_timestamp();
    v_ms bigint := lakelog.ms(v_at);
    v_table text := 'lakelog.incident_' || v_ms / 86400000;
begin
    if cardinality(o_parts) > 0 then
        select w.clock_ms, w.statuses, w.taken into clock_ms, statuses, taken from lakelog.journals_write_once(
            p_groups, p_pids, p_versions, p_nonces, p_after_nonces, p_snapshots, p_bodies, p_not_before, p_not_after,
            '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', o_parts, o_incarnations, o_hashes) w;
    else
        select w.clock_ms, w.statuses, '{}' into clock_ms, statuses, taken from lakelog.journals_write(
            p_groups, p_pids, p_versions, p_nonces, p_after_nonces, p_snapshots, p_bodies, p_not_before, p_not_after) w;
    end if;
    insert into lakelog.dead_letter
        (group_id, pid, message_offset, epoch, at, deliveries, failures, reason, owner, payload, traceback, fingerprint)
    select p_groups[d.part], p_pids[d.part], d.message_offset, d.epoch, v_at,
           d.deliveries, d.failures, d.reason, d.owner, d.payload, d.traceback, d.fingerprint
    from unnest(
        d_parts, d_offsets, d_epochs, d_deliveries, d_failures, d_reasons, d_owners, d_payloads, d_tracebacks,
        d_fingerprints)
        as d (part, message_offset, epoch, deliveries, failures, reason, owner, payload, traceback, fingerprint)
    where statuses[d.part] = 0
    on conflict do nothing;
    if to_regclass(v_table) is null then
        perform lakelog.history_extend('incident', v_ms);
        if to_regclass(v_table) is null then
            return;
        end if;
    end if;
    insert into lakelog.incident
    select v_ms, p_groups[i.part], p_pids[i.part], i.message_offset, i.epoch, i.kind, i.deliveries, i.failures, i.owner,
           i.leased_ms, i.due_ms, i.fingerprint, i.left_out, i.reason, i.traceback
    from unnest(
        i_parts, i_offsets, i_epochs, i_kinds, i_deliveries, i_failures, i_owners, i_leased, i_due, i_fingerprints, i_left_out,
        i_reasons, i_tracebacks)
        as i (part, message_offset, epoch, kind, deliveries, failures, owner, leased_ms, due_ms, fingerprint, left_out,
              reason, traceback)
    where statuses[i.part] = 0;
end
$$;

revoke all on lakelog.incident from public;
grant select, insert on lakelog.incident to lakelog_service;
revoke all on function lakelog.journals_write_noted from public;
grant execute on function lakelog.journals_write_noted to lakelog_service;
