-- Idempotency keys and the state of producers are stored by period, in tables that are emptied whole. Deleting rows one by
-- one left dead rows and an index by time that found less and less.
--
-- Five slots of each table take turns. Rows go to the active slot, and a repeat is searched in all of them. The slot `5`
-- holds keys that are remembered for longer than `period_memory`; they are deleted one by one, through an index.

-- The period of each slot. Without `began_at` the slot is empty, without `ended_at` it takes new rows.
create table lakelog.period (
    slot smallint primary key,
    began_at timestamptz,
    ended_at timestamptz,
    check (ended_at is null or began_at is not null)
) with (fillfactor = 50);
create unique index period_active on lakelog.period ((true)) where began_at is not null and ended_at is null;
insert into lakelog.period (slot, began_at)
select slot, case slot when 0 then clock_timestamp() end from generate_series(0, 4) slot;

-- The offset at which the message with an idempotency key was appended.
create table lakelog.key_append (
    slot smallint not null,
    pid bigint not null,
    key_hash bytea not null,
    base_offset bigint not null,
    expires_at timestamptz not null,
    primary key (pid, key_hash, slot)
) partition by list (slot);

-- The number of a producer's last batch in a partition, and the offsets of its last five batches. Each append inserts a row,
-- and trims delete the rows before it: rows that are updated become slow to find while a long transaction runs elsewhere.
create table lakelog.producer (
    slot smallint not null,
    pid bigint not null,
    producer bytea not null,
    last bigint not null,
    offsets bigint[] not null,
    at timestamptz not null,
    primary key (pid, producer, last, slot)
) partition by list (slot);

do $$
begin
    -- Values are short. Without a TOAST table, a slot is emptied faster.
    alter table lakelog.key_append alter key_hash set storage plain;
    alter table lakelog.producer alter producer set storage plain, alter offsets set storage plain;
    for slot in 0 .. 5 loop
        -- A slot is emptied before its rows need to be frozen.
        execute format('create table lakelog.key_append_%s partition of lakelog.key_append for values in (%1$s) '
                       'with (autovacuum_vacuum_insert_threshold = -1)', slot);
        if slot < 5 then
            execute format('create table lakelog.producer_%s partition of lakelog.producer for values in (%1$s) '
                           'with (autovacuum_vacuum_insert_threshold = -1)', slot);
        end if;
    end loop;
end
$$;
create index key_append_expired on lakelog.key_append_5 (expires_at);

-- Rows from before this migration, in the tables that have no slots, count until they expire. This row is removed when none
-- is left.
create table lakelog.unslotted (
    only_row boolean primary key default true check (only_row),
    migrated_at timestamptz not null default clock_timestamp()
);
insert into lakelog.unslotted default values;

-- Returns how long a slot keeps its rows after the end of its period: a day, and the time by which reservations outlive it.
create function lakelog.period_memory() returns interval
    language sql immutable parallel safe
    return interval '25 hours';

-- Returns the slot that takes new rows, and all slots that have rows.
create function lakelog.period_slots(out active smallint, out used smallint[])
    language sql stable
as $$
    select max(p.slot) filter (where p.ended_at is null), array_agg(p.slot) || 5::smallint
    from lakelog.period p where p.began_at is not null
$$;

-- Returns the state of a producer in a partition, if the producer was active during the day before p_now.
create function lakelog.producer_find(p_pid bigint, p_producer bytea, p_slots smallint[], p_now timestamptz)
    returns table (last bigint, offsets bigint[])
    language sql stable
as $$
    select s.last, s.offsets from (
        (select p.last, p.offsets from lakelog.producer p
         where p.pid = p_pid and p.producer = p_producer and p.slot = any (p_slots) and p.at > p_now - interval '1 day'
         order by p.last desc limit 1)
        union all
        select max(b.sequence), array_agg(b.base_offset order by b.sequence) from (
            select o.sequence, o.base_offset from lakelog.producer_batch o
            where o.pid = p_pid and o.producer = p_producer and o.at > p_now - interval '1 day'
              and exists (select from lakelog.unslotted)
            order by o.sequence desc limit 5
        ) b
        having count(*) > 0
    ) s
    order by s.last desc limit 1
$$;

-- Allocates offsets. The caller's INSERT into the roll's hot table joins on status 0, in the same statement. The statement
-- locks the hot table before this function runs, so the table is not dropped even if the next roll has begun. Repeats are
-- recognised under the lock of their partition, in any slot: a key counts for its memory, a producer for a day. Planning a
-- search of all slots takes longer than the search, so plans are kept.
-- status: 0 appended, 1 missing, 2 closed, 3 epoch, 4 parts (with one more row per rejected part), 5 another roll is active.
create function lakelog.append(
    p_roll integer, p_pids bigint[], p_epochs integer[], p_counts integer[], p_bytes bigint[],
    q_pids bigint[], q_producers bytea[], q_sequences bigint[], q_starts integer[], q_counts integer[],
    k_pids bigint[], k_hashes bytea[], k_starts integer[], k_memories interval[]
) returns setof lakelog.append_answer
    language plpgsql set plan_cache_mode = force_generic_plan
as $$
declare
    v_bad bigint[] := '{}';
    v_row lakelog.append_answer;
    v_run record;
    v_seen record;
    v_accepted bigint;
    v_verdict smallint;
    v_known bigint;
    v_now timestamptz;
    v_slot smallint;
    v_slots smallint[];
    v_unslotted boolean;
    v_expired lakelog.append_answer[] := '{}';
    v_done lakelog.append_answer[] := '{}';
begin
    perform lakelog.lock_partitions(p_pids);

    if cardinality(q_pids) > 0 or cardinality(k_pids) > 0 then
        v_now := clock_timestamp();
        select s.active, s.used into v_slot, v_slots from lakelog.period_slots() s;
        v_unslotted := exists (select from lakelog.unslotted);
    end if;
    if cardinality(q_pids) > 0 then
        for v_run in
            select q.*, coalesce(s.last, -1) as last, s.offsets
            from unnest(q_pids, q_producers, q_sequences) with ordinality as q (pid, producer, sequence, part)
            left join lateral lakelog.producer_find(q.pid, q.producer, v_slots, v_now) s on true
            order by q.pid, q.producer, q.part
        loop
            if v_seen is distinct from (v_run.pid, v_run.producer) then
                v_seen := (v_run.pid, v_run.producer);
                v_accepted := v_run.last;
            end if;
            -- Sequences have no gaps, so that the offset of the last one is the last one of `offsets`.
            v_known := case when v_run.sequence between v_run.last - 4 and v_run.last
                            then (v_run.offsets)[cardinality(v_run.offsets) - (v_run.last - v_run.sequence)] end;
            v_verdict := case
                when v_known is not null then 1
                when v_accepted = -1 and v_run.sequence <> 0 then 2
                when v_run.sequence > v_run.last and v_run.sequence <= v_accepted then 1
                when v_run.sequence <> v_accepted + 1 then 3
            end;
            if v_verdict is null then
                v_accepted := v_run.sequence;
            else
                v_bad := v_bad || v_run.pid;
                return next (v_run.pid, 4, null, null, null, null, null, false, v_run.part - 1, v_verdict,
                             case when v_verdict = 1 then v_known end)::lakelog.append_answer;
            end if;
        end loop;
    end if;

    if cardinality(k_pids) > 0 then
        for v_row in
            select k.pid, 4::smallint, null, null, null, null, null, true, k.part::integer - 1,
                   case when k.repeat > 1 or known.base_offset is not null then 1::smallint end, known.base_offset
            from (
                select u.*, row_number() over (partition by u.pid, u.key_hash order by u.part) as repeat
                from unnest(k_pids, k_hashes, k_memories) with ordinality as u (pid, key_hash, memory, part)
            ) k
            cross join lateral (
                select max(f.base_offset) as base_offset, count(*) as rows from (
                    select case when a.expires_at > v_now then a.base_offset end as base_offset from lakelog.key_append a
                    where a.pid = k.pid and a.key_hash = k.key_hash and a.slot = any (v_slots)
                    union all
                    select o.base_offset from lakelog.keyed_append o
                    where o.pid = k.pid and o.key_hash = k.key_hash and o.at > v_now - k.memory and v_unslotted
                ) f
            ) known
            where known.rows > 0 or k.repeat > 1
        loop
            if v_row.verdict is null then
                v_expired := v_expired || v_row;
            else
                v_bad := v_bad || v_row.pid;
                return next v_row;
            end if;
        end loop;
    end if;

    for v_row in
        with newest as materialized (
            select a.pid, a.count, a.bytes, h.version, h.next_offset, h.log_start, h.total_bytes, h.roll,
                   greatest(h.epoch, a.epoch) as epoch, h.state, greatest(h.appended_at, clock_timestamp()) as at,
                   active.roll as active,
                   case
                       when h.pid is null then 1
                       when h.state <> 0 then 2
                       when a.pid = any (v_bad) then 4
                       when a.epoch < h.epoch then 3
                       when active.roll <> p_roll then 5
                       else 0
                   end::smallint as status
            from (select max(r.roll) as roll from lakelog.roll r) active
            cross join unnest(p_pids, p_epochs, p_counts, p_bytes) as a (pid, epoch, count, bytes)
            left join lateral (
                select * from lakelog.head x where x.pid = a.pid order by x.version desc limit 1
            ) h on true
        ), heads as (
            insert into lakelog.head (pid, version, next_offset, log_start, total_bytes, appended_at, roll, epoch, state)
            select n.pid, n.version + 1, n.next_offset + n.count, n.log_start, n.total_bytes + n.bytes, n.at, n.active,
                   n.epoch, n.state
            from newest n where n.status = 0
        ), spans as (
            -- The partition's first append to this hot table.
            insert into lakelog.span (pid, first_offset, roll)
            select n.pid, n.next_offset, n.active from newest n where n.status = 0 and n.roll <> n.active
            on conflict (pid, first_offset) do update set roll = excluded.roll
        )
        select n.pid, n.status, n.next_offset, n.total_bytes, n.at, n.epoch, n.active,
               null::boolean, null::integer, null::smallint, null::bigint
        from newest n
    loop
        if v_slot is not null then
            v_done := v_done || v_row;
        end if;
        return next v_row;
    end loop;

    if cardinality(q_pids) > 0 then
        insert into lakelog.producer as p (slot, pid, producer, last, offsets, at)
        select v_slot, g.pid, g.producer, g.last, r.offsets[greatest(1, cardinality(r.offsets) - 4):], g.at
        from (
            select q.pid, q.producer, max(q.sequence) as last, max(n.appended_at) as at,
                   array_agg(n.base + q.start order by q.sequence) as offsets
            from unnest(q_pids, q_producers, q_sequences, q_starts) as q (pid, producer, sequence, start)
            join unnest(v_done) n on n.pid = q.pid and n.status = 0
            group by q.pid, q.producer
        ) g
        left join lateral lakelog.producer_find(g.pid, g.producer, v_slots, v_now) s on true
        cross join lateral (select s.offsets || g.offsets as offsets) r
        -- A producer that was inactive for a day begins again at 0, and an old row may not have been trimmed.
        on conflict (pid, producer, last, slot) do update set offsets = excluded.offsets, at = excluded.at;
    end if;
    if cardinality(k_pids) > 0 then
        if cardinality(v_expired) > 0 then
            delete from lakelog.key_append a using unnest(v_expired) e
            where a.pid = e.pid and a.key_hash = k_hashes[e.part + 1] and a.slot = any (v_slots);
        end if;
        insert into lakelog.key_append (slot, pid, key_hash, base_offset, expires_at)
        select case when k.memory > lakelog.period_memory() then 5 else v_slot end,
               k.pid, k.key_hash, n.base + k.start, v_now + k.memory
        from unnest(k_pids, k_hashes, k_starts, k_memories) as k (pid, key_hash, start, memory)
        join unnest(v_done) n on n.pid = k.pid and n.status = 0;
    end if;
end
$$;

-- Deletes rows of producers that have a newer one in the active slot, in some partitions behind p_after. Deletes at most p_rows.
create function lakelog.producers_trim_superseded(
    p_after bigint, p_partitions integer, p_rows bigint, out next_after bigint, out trimmed bigint
)
    language plpgsql
as $$
declare
    v_until bigint := lakelog.partitions_walk(p_after, p_partitions);
    v_slot smallint := (select s.active from lakelog.period_slots() s);
begin
    delete from lakelog.producer where slot = v_slot and ctid = any (array(
        select old.ctid from (
            select distinct on (p.pid, p.producer) p.pid, p.producer, p.at, p.last from lakelog.producer p
            where p.slot = v_slot and p.pid > p_after and p.pid <= coalesce(v_until, 9223372036854775807)
            order by p.pid, p.producer, p.at desc, p.last desc
        ) newest
        cross join lateral (
            select p.ctid from lakelog.producer p
            where p.slot = v_slot and p.pid = newest.pid and p.producer = newest.producer
              and (p.at, p.last) < (newest.at, newest.last)
        ) old
        limit p_rows
    ));
    get diagnostics trimmed = row_count;
    next_after := case when trimmed = p_rows then p_after else v_until end;
end
$$;

-- Servers of the version before do not send how long a topic remembers its keys.
create or replace function lakelog.append(
    p_roll integer, p_pids bigint[], p_epochs integer[], p_counts integer[], p_bytes bigint[],
    q_pids bigint[], q_producers bytea[], q_sequences bigint[], q_starts integer[], q_counts integer[],
    k_pids bigint[], k_hashes bytea[], k_starts integer[]
) returns setof lakelog.append_answer
    language sql
as $$
    select * from lakelog.append(
        p_roll, p_pids, p_epochs, p_counts, p_bytes, q_pids, q_producers, q_sequences, q_starts, q_counts,
        k_pids, k_hashes, k_starts, array_fill(interval '1 day', array[cardinality(k_pids)]))
$$;

grant select on lakelog.period to lakelog_service;
grant select, delete on lakelog.unslotted to lakelog_service;
grant select, insert, update, delete on lakelog.key_append to lakelog_service;
grant select, insert, update, delete on lakelog.producer to lakelog_service;
revoke all on function lakelog.period_memory, lakelog.period_slots, lakelog.producer_find, lakelog.producers_trim_superseded,
    lakelog.append(
        integer, bigint[], integer[], integer[], bigint[], bigint[], bytea[], bigint[], integer[], integer[],
        bigint[], bytea[], integer[], interval[]) from public;
grant execute on function lakelog.period_memory, lakelog.period_slots, lakelog.producer_find, lakelog.producers_trim_superseded,
    lakelog.append(
        integer, bigint[], integer[], integer[], bigint[], bigint[], bytea[], bigint[], integer[], integer[],
        bigint[], bytea[], integer[], interval[]) to lakelog_service;
