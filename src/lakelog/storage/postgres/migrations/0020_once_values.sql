-- A group accepts one run of each value of a subscription with `once`. The values are stored by period, like idempotency
-- keys, in tables that are emptied whole.

-- The hash of a value of which a group accepted a run in a topic. It counts for lakelog.once_memory().
create table lakelog.once_value (
    slot smallint not null,
    group_id bigint not null,
    incarnation bigint not null,
    value_hash bytea not null,
    accepted_at timestamptz not null,
    primary key (group_id, incarnation, value_hash, slot)
) partition by list (slot);

do $$
begin
    alter table lakelog.once_value alter value_hash set storage plain;
    for slot in 0 .. 4 loop
        execute format('create table lakelog.once_value_%s partition of lakelog.once_value for values in (%1$s) '
                       'with (autovacuum_vacuum_insert_threshold = -1)', slot);
    end loop;
end
$$;

-- Returns how long a group remembers a value. A slot is emptied later than that after the end of its period.
create function lakelog.once_memory() returns interval
    language sql immutable parallel safe
    return interval '24 hours';

-- Commits journal entries that accept values, like lakelog.journals_write, which writes the entries without repeated values.
-- o_parts has the number of the entry of each value. An entry with a value that the group has accepted before gets status 3,
-- and `taken` has the numbers of such values. An entry with the value of an earlier entry of this commit gets status 1: the
-- earlier entry may be refused. Values are inserted in order and before journal rows, which prevents deadlocks. A commit that
-- meets an uncommitted value waits for it. No period begins while this runs, so that two commits meet in the same slot.
create function lakelog.journals_write_once(
    p_groups bigint[], p_pids bigint[], p_versions bigint[], p_nonces bigint[], p_after_nonces bigint[],
    p_snapshots boolean[], p_bodies bytea[], p_not_before bigint[], p_not_after bigint[],
    d_parts integer[], d_offsets bigint[], d_epochs integer[], d_deliveries integer[], d_failures integer[], d_reasons text[],
    d_owners text[], d_payloads bytea[], d_tracebacks text[],
    o_parts integer[], o_incarnations bigint[], o_hashes bytea[],
    out clock_ms bigint, out statuses smallint[], out taken integer[]
)
    language plpgsql set plan_cache_mode = force_generic_plan
as $$
declare
    v_now timestamptz;
    v_slot smallint;
    v_others smallint[];
    v_firsts integer[];
    v_new integer[];
    v_taken_parts integer[];
    v_late_parts integer[];
    v_failed integer[];
begin
    perform pg_advisory_xact_lock_shared(lakelog.lock_key(-5));
    v_now := clock_timestamp();
    select s.active, array_remove(s.used, s.active) into v_slot, v_others from lakelog.period_slots() s;
    -- The first place of each value in this commit.
    select array_agg(f.place) into v_firsts from (
        select distinct on (p_groups[o.part], o.incarnation, o.hash) o.place::integer as place
        from unnest(o_parts, o_incarnations, o_hashes) with ordinality as o (part, incarnation, hash, place)
        order by p_groups[o.part], o.incarnation, o.hash, o.place
    ) f;
    with inserted as (
        insert into lakelog.once_value as v (slot, group_id, incarnation, value_hash, accepted_at)
        select v_slot, p_groups[o_parts[f.place]], o_incarnations[f.place], o_hashes[f.place], v_now
        from unnest(v_firsts) as f (place)
        where not exists (
            select from lakelog.once_value x
            where x.group_id = p_groups[o_parts[f.place]] and x.incarnation = o_incarnations[f.place]
              and x.value_hash = o_hashes[f.place] and x.slot = any (v_others)
              and x.accepted_at > v_now - lakelog.once_memory()
        )
        order by 2, 3, 4
        on conflict on constraint once_value_pkey do update set accepted_at = excluded.accepted_at
        where v.accepted_at <= excluded.accepted_at - lakelog.once_memory()
        returning v.group_id, v.incarnation, v.value_hash
    )
    select array_agg(f.place) into v_new from unnest(v_firsts) as f (place)
    join inserted i on i.group_id = p_groups[o_parts[f.place]] and i.incarnation = o_incarnations[f.place]
        and i.value_hash = o_hashes[f.place];
    select coalesce(array_agg(f.place), '{}'), coalesce(array_agg(distinct o_parts[f.place]), '{}')
    into taken, v_taken_parts
    from unnest(v_firsts) as f (place) where f.place <> all (coalesce(v_new, '{}'));
    select coalesce(array_agg(distinct o.part), '{}') into v_late_parts
    from unnest(o_parts) with ordinality as o (part, place) where o.place::integer <> all (v_firsts);

    -- Version 0 follows no row of a journal, so that such an entry conflicts.
    select w.clock_ms, w.statuses into clock_ms, statuses from lakelog.journals_write(
        p_groups, p_pids,
        array(select case when e.part::integer = any (v_taken_parts || v_late_parts) then 0 else e.version end
              from unnest(p_versions) with ordinality as e (version, part) order by e.part),
        p_nonces, p_after_nonces, p_snapshots, p_bodies, p_not_before, p_not_after,
        d_parts, d_offsets, d_epochs, d_deliveries, d_failures, d_reasons, d_owners, d_payloads, d_tracebacks) w;
    select array_agg(case when e.part::integer = any (v_taken_parts) then 3::smallint else e.status end order by e.part),
           array_agg(e.part::integer) filter (where e.status <> 0)
    into statuses, v_failed from unnest(statuses) with ordinality as e (status, part);
    if v_failed is not null then
        delete from lakelog.once_value v using unnest(v_new) as f (place)
        where o_parts[f.place] = any (v_failed) and v.slot = v_slot and v.group_id = p_groups[o_parts[f.place]]
          and v.incarnation = o_incarnations[f.place] and v.value_hash = o_hashes[f.place];
    end if;
end
$$;

-- Returns those of the hashes of which the group has accepted a run in the topic.
create function lakelog.once_find(p_group bigint, p_incarnation bigint, p_hashes bytea[]) returns setof bytea
    language plpgsql stable set plan_cache_mode = force_generic_plan
as $$
declare
    v_slots smallint[] := (select s.used from lakelog.period_slots() s);
begin
    return query
    select h.hash from unnest(p_hashes) as h (hash)
    where exists (
        select from lakelog.once_value v
        where v.group_id = p_group and v.incarnation = p_incarnation and v.value_hash = h.hash and v.slot = any (v_slots)
          and v.accepted_at > clock_timestamp() - lakelog.once_memory()
    );
end
$$;

-- As before, with the table of values.
create or replace function lakelog.period_begin(p_length interval) returns boolean
    language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_now timestamptz := clock_timestamp();
    v_old lakelog.period;
    v_new smallint;
    v_has_rows boolean;
begin
    if not pg_try_advisory_xact_lock(lakelog.lock_key(-6)) then
        return false;
    end if;
    select * into strict v_old from lakelog.period where began_at is not null and ended_at is null;
    if v_old.began_at > v_now - p_length then
        return false;
    end if;
    execute format(
        'select exists (select from lakelog.key_append_%1$s) or exists (select from lakelog.key_reservation_%1$s) '
        'or exists (select from lakelog.producer_%1$s) or exists (select from lakelog.once_value_%1$s)',
        v_old.slot) into v_has_rows;
    if not v_has_rows then
        update lakelog.period set began_at = v_now where slot = v_old.slot;
        return false;
    end if;
    select slot into v_new from lakelog.period where began_at is null order by slot limit 1;
    if v_new is null then
        return false;
    end if;
    perform set_config('lock_timeout', '100ms', true);
    perform pg_advisory_xact_lock(lakelog.lock_key(-5));
    update lakelog.period set ended_at = clock_timestamp() where slot = v_old.slot;
    update lakelog.period set began_at = clock_timestamp() where slot = v_new;
    return true;
exception
    when lock_not_available then
        return false;
end
$$;

-- As before, with the table of values.
create or replace function lakelog.period_empty() returns boolean
    language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_slot smallint;
    v_table text;
    v_has_rows boolean;
begin
    if not pg_try_advisory_xact_lock(lakelog.lock_key(-6)) then
        return null;
    end if;
    select slot into v_slot from lakelog.period
    where ended_at <= clock_timestamp() - lakelog.period_memory() order by ended_at limit 1;
    if v_slot is null then
        return null;
    end if;
    perform set_config('lock_timeout', '100ms', true);
    foreach v_table in array array['producer', 'key_append', 'key_reservation', 'once_value'] loop
        execute format('select exists (select from lakelog.%s_%s)', v_table, v_slot) into v_has_rows;
        if v_has_rows then
            execute format('truncate lakelog.%s_%s', v_table, v_slot);
            return false;
        end if;
    end loop;
    update lakelog.period set began_at = null, ended_at = null where slot = v_slot;
    return true;
exception
    when lock_not_available then
        return null;
end
$$;

grant select, insert, update, delete on lakelog.once_value to lakelog_service;
revoke all on function lakelog.once_memory, lakelog.journals_write_once, lakelog.once_find from public;
grant execute on function lakelog.once_memory, lakelog.journals_write_once, lakelog.once_find to lakelog_service;
