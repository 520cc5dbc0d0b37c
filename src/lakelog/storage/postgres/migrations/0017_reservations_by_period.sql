-- Reservations of idempotency keys are stored by period too, and the periods of all three tables change together.

-- The partition and the body hash of the message with an idempotency key. The first writer wins.
create table lakelog.key_reservation (
    slot smallint not null,
    incarnation bigint not null,
    key_hash bytea not null,
    body_hash bytea not null,
    partition integer not null,
    expires_at timestamptz not null,
    primary key (incarnation, key_hash, slot)
) partition by list (slot);

do $$
begin
    alter table lakelog.key_reservation alter key_hash set storage plain, alter body_hash set storage plain;
    for slot in 0 .. 5 loop
        execute format('create table lakelog.key_reservation_%s partition of lakelog.key_reservation for values in (%1$s) '
                       'with (autovacuum_vacuum_insert_threshold = -1)', slot);
    end loop;
end
$$;
create index key_reservation_expired on lakelog.key_reservation_5 (expires_at);

-- A call of the previous function that ran during this migration must not reserve a key beside a call of the new one.
create function lakelog.reservation_moved() returns trigger
    language plpgsql
as $$
begin
    raise exception 'Reservations are in another table now.' using errcode = 'serialization_failure';
end
$$;
create trigger reservation_moved before insert on lakelog.reservation
    for each statement execute function lakelog.reservation_moved();

-- Returns the reservations that hold, in the order of the arguments. Keys are inserted in order, which prevents deadlocks. A
-- reservation counts for p_memories from its last use with the same body: the use of one from another slot copies it. No
-- period begins while this runs, so that two calls with one key meet in the same slot.
create function lakelog.reserve(
    p_durable boolean, p_incarnations bigint[], p_key_hashes bytea[], p_body_hashes bytea[], p_partitions integer[],
    p_memories interval[]
) returns table (part integer, body_hash bytea, "partition" integer)
    language plpgsql set plan_cache_mode = force_generic_plan
as $$
declare
    v_now timestamptz;
    v_slot smallint;
    v_slots smallint[];
    v_others smallint[];
    v_unslotted boolean;
    v_used integer;
begin
    if not p_durable then
        perform set_config('synchronous_commit', 'off', true);
    end if;
    perform pg_advisory_xact_lock_shared(lakelog.lock_key(-5));
    v_now := clock_timestamp();
    select s.active, s.used, array_remove(s.used, s.active) into v_slot, v_slots, v_others from lakelog.period_slots() s;
    v_unslotted := exists (select from lakelog.unslotted);
    insert into lakelog.key_reservation as r (slot, incarnation, key_hash, body_hash, partition, expires_at)
    select v_slot, a.incarnation, a.key_hash, a.body_hash, coalesce(f.partition, a.partition), v_now + a.memory
    from unnest(p_incarnations, p_key_hashes, p_body_hashes, p_partitions, p_memories)
        as a (incarnation, key_hash, body_hash, partition, memory)
    left join lateral (
        select o.body_hash, o.partition from lakelog.key_reservation o
        where o.incarnation = a.incarnation and o.key_hash = a.key_hash and o.slot = any (v_others) and o.expires_at > v_now
        union all
        select o.body_hash, o.partition from lakelog.reservation o
        where o.incarnation = a.incarnation and o.key_hash = a.key_hash and o.at > v_now - a.memory and v_unslotted
        limit 1
    ) f on true
    where f.body_hash is null or f.body_hash = a.body_hash
    order by a.incarnation, a.key_hash
    on conflict on constraint key_reservation_pkey do update
    set body_hash = excluded.body_hash, expires_at = excluded.expires_at,
        partition = case when r.expires_at <= v_now then excluded.partition else r.partition end
    where r.body_hash = excluded.body_hash or r.expires_at <= v_now;
    get diagnostics v_used = row_count;
    -- The copy in slot 5 outlives the one in the active slot, which decides between concurrent calls.
    insert into lakelog.key_reservation (slot, incarnation, key_hash, body_hash, partition, expires_at)
    select 5, r.incarnation, r.key_hash, r.body_hash, r.partition, r.expires_at
    from unnest(p_incarnations, p_key_hashes, p_memories) as u (incarnation, key_hash, memory)
    join lakelog.key_reservation r
        on r.incarnation = u.incarnation and r.key_hash = u.key_hash and r.slot = v_slot and r.expires_at > v_now
    where u.memory > lakelog.period_memory()
    order by 2, 3
    on conflict on constraint key_reservation_pkey do update
    set body_hash = excluded.body_hash, partition = excluded.partition, expires_at = excluded.expires_at;
    if v_used = cardinality(p_key_hashes) then
        return query
        select u.part::integer, r.body_hash, r.partition
        from unnest(p_incarnations, p_key_hashes) with ordinality as u (incarnation, key_hash, part)
        join lakelog.key_reservation r on r.incarnation = u.incarnation and r.key_hash = u.key_hash and r.slot = v_slot
        order by u.part;
        return;
    end if;
    return query
    select u.part::integer, f.body_hash, f.partition
    from unnest(p_incarnations, p_key_hashes, p_memories) with ordinality as u (incarnation, key_hash, memory, part)
    cross join lateral (
        select o.body_hash, o.partition from lakelog.key_reservation o
        where o.incarnation = u.incarnation and o.key_hash = u.key_hash and o.slot = any (v_slots) and o.expires_at > v_now
        union all
        select o.body_hash, o.partition from lakelog.reservation o
        where o.incarnation = u.incarnation and o.key_hash = u.key_hash and o.at > v_now - u.memory and v_unslotted
        limit 1
    ) f
    order by u.part;
end
$$;

create or replace function lakelog.reserve(
    p_durable boolean, p_incarnations bigint[], p_key_hashes bytea[], p_body_hashes bytea[], p_partitions integer[]
) returns table (part integer, body_hash bytea, "partition" integer)
    language sql
as $$
    select * from lakelog.reserve(
        p_durable, p_incarnations, p_key_hashes, p_body_hashes, p_partitions,
        array_fill(interval '1 day 1 minute', array[cardinality(p_key_hashes)]))
$$;

-- Ends the active period if it is older than p_length and another slot is empty, and returns whether it did. A period without
-- rows begins again. Reservations wait for this, and this waits for running ones, but not for long.
create function lakelog.period_begin(p_length interval) returns boolean
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
        'or exists (select from lakelog.producer_%1$s)', v_old.slot) into v_has_rows;
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

-- Empties one table of the oldest period, if all of its rows have expired. Returns whether all tables of the period are empty
-- now, and null if there is nothing to do. Publishers wait for this, and this waits for running ones, but not for long:
-- PostgreSQL removes the files, which takes longer for large ones, when it has released the lock.
create function lakelog.period_empty() returns boolean
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
    foreach v_table in array array['producer', 'key_append', 'key_reservation'] loop
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

-- Deletes up to p_limit expired keys that are remembered for longer than a period, and returns how many of each kind.
create function lakelog.keys_trim_long(p_limit bigint, out appends bigint, out reservations bigint)
    language plpgsql
as $$
declare
    v_now timestamptz := clock_timestamp();
begin
    delete from lakelog.key_append where slot = 5 and expires_at <= v_now and ctid = any (array(
        select a.ctid from lakelog.key_append a where a.slot = 5 and a.expires_at <= v_now
        order by a.expires_at limit p_limit));
    get diagnostics appends = row_count;
    delete from lakelog.key_reservation where slot = 5 and expires_at <= v_now and ctid = any (array(
        select r.ctid from lakelog.key_reservation r where r.slot = 5 and r.expires_at <= v_now
        order by r.expires_at limit p_limit));
    get diagnostics reservations = row_count;
end
$$;

-- Returns whether rows without a slot count. An hour after the migration, when no call from before it can run, they do not
-- count any more if none is left.
create function lakelog.unslotted_check() returns boolean
    language plpgsql
as $$
begin
    delete from lakelog.unslotted where migrated_at < clock_timestamp() - interval '1 hour'
        and not exists (select from lakelog.keyed_append) and not exists (select from lakelog.reservation)
        and not exists (select from lakelog.producer_batch);
    return exists (select from lakelog.unslotted);
end
$$;

grant select, insert, update, delete on lakelog.key_reservation to lakelog_service;
revoke all on function lakelog.reservation_moved, lakelog.period_begin, lakelog.period_empty, lakelog.keys_trim_long,
    lakelog.unslotted_check, lakelog.reserve(boolean, bigint[], bytea[], bytea[], integer[], interval[]) from public;
grant execute on function lakelog.period_begin, lakelog.period_empty, lakelog.keys_trim_long,
    lakelog.unslotted_check, lakelog.reserve(boolean, bigint[], bytea[], bytea[], integer[], interval[]) to lakelog_service;
