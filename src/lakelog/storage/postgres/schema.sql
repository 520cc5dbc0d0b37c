-- The present schema, written by pg_dump from the migrations; a test keeps it in step.

CREATE SCHEMA lakelog;

CREATE TYPE lakelog.append_answer AS (
	pid bigint,
	status smallint,
	base bigint,
	bytes_base bigint,
	appended_at timestamp with time zone,
	epoch integer,
	roll integer,
	keyed boolean,
	part integer,
	verdict smallint,
	part_offset bigint
);

CREATE FUNCTION lakelog.append(p_roll integer, p_pid bigint, p_epoch integer, p_count integer, p_bytes bigint) RETURNS lakelog.append_answer
    LANGUAGE plpgsql
    AS $$
declare
    v_head lakelog.head;
    v_active integer;
    v_status smallint;
    v_epoch integer;
    v_at timestamptz;
begin
    perform pg_advisory_xact_lock(lakelog.lock_key(p_pid));
    -- A statement of its own: a snapshot from before the lock would miss the newest head.
    select h.* into v_head from lakelog.head h where h.pid = p_pid order by h.version desc limit 1;
    select max(r.roll) into v_active from lakelog.roll r;
    v_epoch := greatest(v_head.epoch, p_epoch);
    v_at := greatest(v_head.appended_at, clock_timestamp());
    v_status := case
        when v_head.pid is null then 1
        when v_head.state <> 0 then 2
        when p_epoch < v_head.epoch then 3
        when v_active <> p_roll then 5
        else 0
    end;
    if v_status = 0 then
        insert into lakelog.head (pid, version, next_offset, log_start, total_bytes, appended_at, roll, epoch, state)
        values (p_pid, v_head.version + 1, v_head.next_offset + p_count, v_head.log_start, v_head.total_bytes + p_bytes,
                v_at, v_active, v_epoch, v_head.state);
        if v_head.roll <> v_active then
            -- The partition's first append to this hot table.
            insert into lakelog.span (pid, first_offset, roll) values (p_pid, v_head.next_offset, v_active)
            on conflict (pid, first_offset) do update set roll = excluded.roll;
        end if;
    end if;
    return (p_pid, v_status, v_head.next_offset, v_head.total_bytes, v_at, v_epoch, v_active,
            null, null, null, null)::lakelog.append_answer;
end
$$;

CREATE FUNCTION lakelog.append(p_roll integer, p_pid bigint, p_epoch integer, p_count integer, p_bytes bigint, p_producer bytea, p_sequence bigint) RETURNS SETOF lakelog.append_answer
    LANGUAGE plpgsql
    AS $$
declare
    v_slot smallint;
    v_slots smallint[];
    v_last bigint;
    v_offsets bigint[];
    v_known bigint;
    v_verdict smallint;
    v_head lakelog.head;
    v_active integer;
    v_status smallint;
    v_epoch integer;
    v_at timestamptz;
begin
    perform pg_advisory_xact_lock(lakelog.lock_key(p_pid));
    -- A statement of its own: a snapshot from before the lock would miss the newest head.
    select h.* into v_head from lakelog.head h where h.pid = p_pid order by h.version desc limit 1;
    select max(r.roll) into v_active from lakelog.roll r;
    -- As `lakelog.period_slots` does, whose call would be planned each time.
    select max(p.slot) filter (where p.ended_at is null), array_agg(p.slot) || 5::smallint into v_slot, v_slots
    from lakelog.period p where p.began_at is not null;
    -- In a variable: with a volatile argument, `producer_find` would be planned each time.
    v_at := clock_timestamp();
    select s.last, s.offsets into v_last, v_offsets from lakelog.producer_find(p_pid, p_producer, v_slots, v_at) s;

    if p_sequence between v_last - 4 and v_last then
        -- Sequences have no gaps, so that the offset of the last one is the last one of the array.
        v_known := v_offsets[cardinality(v_offsets) - (v_last - p_sequence)];
    end if;
    v_verdict := case
        when v_known is not null then 1
        when v_last is null and p_sequence <> 0 then 2
        when p_sequence <> coalesce(v_last, -1) + 1 then 3
    end;
    if v_verdict is not null then
        return next (p_pid, 4, null, null, null, null, null, false, 0, v_verdict, v_known)::lakelog.append_answer;
    end if;

    v_epoch := greatest(v_head.epoch, p_epoch);
    v_at := greatest(v_head.appended_at, v_at);
    v_status := case
        when v_head.pid is null then 1
        when v_head.state <> 0 then 2
        when v_verdict is not null then 4
        when p_epoch < v_head.epoch then 3
        when v_active <> p_roll then 5
        else 0
    end;
    if v_status = 0 then
        insert into lakelog.head (pid, version, next_offset, log_start, total_bytes, appended_at, roll, epoch, state)
        values (p_pid, v_head.version + 1, v_head.next_offset + p_count, v_head.log_start, v_head.total_bytes + p_bytes,
                v_at, v_active, v_epoch, v_head.state);
        if v_head.roll <> v_active then
            -- The partition's first append to this hot table.
            insert into lakelog.span (pid, first_offset, roll) values (p_pid, v_head.next_offset, v_active)
            on conflict (pid, first_offset) do update set roll = excluded.roll;
        end if;
        v_offsets := v_offsets || v_head.next_offset;
        insert into lakelog.producer (slot, pid, producer, last, offsets, at)
        values (v_slot, p_pid, p_producer, p_sequence, v_offsets[greatest(1, cardinality(v_offsets) - 4):], v_at)
        -- A producer that was inactive for a day begins again at 0, and an old row may not have been trimmed.
        on conflict (pid, producer, last, slot) do update set offsets = excluded.offsets, at = excluded.at;
    end if;
    return next (p_pid, v_status, v_head.next_offset, v_head.total_bytes, v_at, v_epoch, v_active,
                 null, null, null, null)::lakelog.append_answer;
end
$$;

CREATE FUNCTION lakelog.append(p_roll integer, p_pids bigint[], p_epochs integer[], p_counts integer[], p_bytes bigint[], q_pids bigint[], q_producers bytea[], q_sequences bigint[], q_starts integer[], q_counts integer[], k_pids bigint[], k_hashes bytea[], k_starts integer[]) RETURNS SETOF lakelog.append_answer
    LANGUAGE sql
    AS $$
    select * from lakelog.append(
        p_roll, p_pids, p_epochs, p_counts, p_bytes, q_pids, q_producers, q_sequences, q_starts, q_counts,
        k_pids, k_hashes, k_starts, array_fill(interval '1 day', array[cardinality(k_pids)]))
$$;

CREATE FUNCTION lakelog.append(p_roll integer, p_pids bigint[], p_epochs integer[], p_counts integer[], p_bytes bigint[], q_pids bigint[], q_producers bytea[], q_sequences bigint[], q_starts integer[], q_counts integer[], k_pids bigint[], k_hashes bytea[], k_starts integer[], k_memories interval[]) RETURNS SETOF lakelog.append_answer
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
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

CREATE FUNCTION lakelog.audit_trim(p_rows integer) RETURNS integer
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    with trimmed as (
        delete from lakelog.audit where ctid = any (array(
            select a.ctid from lakelog.audit a where a.at < now() - interval '400 days' order by a.at limit p_rows))
        returning 1
    )
    select count(*)::integer from trimmed
$$;

CREATE FUNCTION lakelog.dead_discard(p_group bigint, p_pids bigint[], p_offsets bigint[], p_epochs integer[]) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
declare
    v_discarded bigint := 0;
begin
    for i in 1 .. cardinality(p_pids) loop
        update lakelog.dead_letter set state = 2
        where group_id = p_group and pid = p_pids[i] and message_offset = p_offsets[i] and epoch = p_epochs[i]
          and state = 0;
        v_discarded := v_discarded + found::integer;
    end loop;
    return v_discarded;
end
$$;

CREATE FUNCTION lakelog.deliver(p_roll integer, p_pids bigint[], p_epochs integer[], p_counts integer[], p_bytes bigint[], q_pids bigint[], q_producers bytea[], q_sequences bigint[], q_starts integer[], q_counts integer[], k_pids bigint[], k_hashes bytea[], k_starts integer[], k_memories interval[]) RETURNS SETOF lakelog.append_answer
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
declare
    v_absent integer[];
    v_epochs integer[];
    v_answer lakelog.append_answer;
    v_appended bigint[] := '{}';
    v_repeated integer[] := '{}';
begin
    -- Rows are locked in order, which prevents deadlocks between two deliveries.
    with locked as materialized (
        select d.part
        from (
            select k.* from unnest(k_pids, k_hashes) with ordinality as k (pid, mark, part) order by k.pid, k.mark
        ) d
        cross join lateral (
            -- The offset keeps the state out of this search, which could use a partial index with many rows of the partition.
            select x.state, x.due_at from lakelog.scheduled x where x.pid = d.pid and x.mark = d.mark offset 0 for update
        ) s
        where s.state = 0 and s.due_at <= clock_timestamp()
    )
    select array_agg(a.part) into v_absent from generate_subscripts(k_pids, 1) as a (part)
    where a.part not in (select l.part from locked l);
    if v_absent is not null then
        return query
        select k_pids[a.part], 6::smallint, null::bigint, null::bigint, null::timestamptz, null::integer, null::integer,
               true, a.part - 1, null::smallint, null::bigint
        from unnest(v_absent) as a (part);
        return;
    end if;
    perform lakelog.lock_partitions(p_pids);
    -- In its own statement, because an earlier snapshot would miss the newest heads.
    select array_agg(coalesce(h.epoch, 0) order by a.part) into v_epochs
    from unnest(p_pids) with ordinality as a (pid, part)
    left join lateral (
        select x.epoch from lakelog.head x where x.pid = a.pid order by x.version desc limit 1
    ) h on true;
    for v_answer in
        select * from lakelog.append(p_roll, p_pids, v_epochs, p_counts, p_bytes, q_pids, q_producers, q_sequences, q_starts,
                                     q_counts, k_pids, k_hashes, k_starts, k_memories)
    loop
        if v_answer.part is not null then
            v_repeated := v_repeated || v_answer.part + 1;
        elsif v_answer.status = 0 then
            v_appended := v_appended || v_answer.pid;
        end if;
        return next v_answer;
    end loop;
    delete from lakelog.scheduled s
    using unnest(k_pids, k_hashes) with ordinality as k (pid, mark, part)
    where s.pid = k.pid and s.mark = k.mark and (k.pid = any (v_appended) or k.part::integer = any (v_repeated));
end
$$;

CREATE FUNCTION lakelog.heads_change(p_pids bigint[], p_state smallint, p_epoch integer) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    if p_state = 2 then
        -- A create that arrives after this delete must find the heads, deleted.
        perform lakelog.heads_create(p_pids, 0);
    end if;
    perform lakelog.lock_partitions(p_pids);
    with changed as (
        insert into lakelog.head as x (pid, version, next_offset, log_start, total_bytes, appended_at, roll, epoch, state)
        select h.pid, h.version + 1, h.next_offset, case when p_state = 2 then h.next_offset else h.log_start end,
               h.total_bytes, h.appended_at, h.roll, greatest(h.epoch, p_epoch), greatest(h.state, p_state)
        from unnest(p_pids) as a (pid)
        cross join lateral (select * from lakelog.head x where x.pid = a.pid order by x.version desc limit 1) h
        where h.epoch < p_epoch or h.state < p_state
        returning x.pid
    )
    insert into lakelog.closed_partition (pid) select c.pid from changed c where p_state = 2 on conflict do nothing;
end
$$;

CREATE FUNCTION lakelog.heads_create(p_pids bigint[], p_epoch integer) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    -- Partitions of a closed topic are removed under the exclusive form of this lock. The next statement sees that.
    perform pg_advisory_xact_lock_shared(lakelog.lock_key(0));
    with made as (
        insert into lakelog.partition (pid)
        select u.pid from unnest(p_pids) as u (pid)
        where not exists (select from lakelog.closed_topic c where c.incarnation = u.pid >> 16)
        order by 1 on conflict do nothing returning pid
    )
    insert into lakelog.head (pid, version, next_offset, log_start, total_bytes, appended_at, roll, epoch, state)
    select pid, 0, 0, 0, 0, clock_timestamp(), 0, p_epoch, 0 from made;
end
$$;

CREATE FUNCTION lakelog.heads_trim() RETURNS bigint
    LANGUAGE plpgsql
    AS $$
declare
    v_trimmed bigint;
begin
    with doomed as (
        delete from lakelog.head old
        using (
            select p.pid, h.version from lakelog.partition p
            cross join lateral (
                select x.version from lakelog.head x where x.pid = p.pid order by x.version desc limit 1
            ) h
        ) newest
        where old.pid = newest.pid and old.version < newest.version
        returning 1
    )
    select count(*) into v_trimmed from doomed;
    return v_trimmed;
end
$$;

CREATE FUNCTION lakelog.heads_trim_some(p_after bigint, p_partitions integer, p_rows bigint, OUT next_after bigint, OUT trimmed bigint) RETURNS record
    LANGUAGE plpgsql
    AS $$
declare
    v_until bigint := lakelog.partitions_walk(p_after, p_partitions);
    v_is_limited boolean;
begin
    with walked as materialized (
        select p.pid, o.version as oldest, h.version as newest from lakelog.partition p
        cross join lateral (select x.version from lakelog.head x where x.pid = p.pid order by x.version desc limit 1) h
        cross join lateral (select x.version from lakelog.head x where x.pid = p.pid order by x.version limit 1) o
        where p.pid > p_after and (v_until is null or p.pid <= v_until)
    ), doomed as (
        delete from lakelog.head old using walked s
        where old.pid = s.pid and old.version >= s.oldest and old.version < least(s.newest, s.oldest + p_rows)
        returning 1
    )
    select (select count(*) from doomed), coalesce(bool_or(s.newest - s.oldest > p_rows), false)
    into trimmed, v_is_limited from walked s;
    next_after := case when v_is_limited then p_after else v_until end;
end
$$;

CREATE FUNCTION lakelog.heartbeats_write(p_groups bigint[], p_members text[]) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
declare
    v_at timestamptz := clock_timestamp();
begin
    perform set_config('synchronous_commit', 'off', true);
    insert into lakelog.heartbeat as h (group_id, member_id, seen_at)
    select u.group_id, u.member_id, v_at from unnest(p_groups, p_members) as u (group_id, member_id)
    on conflict (group_id, member_id) do update set seen_at = greatest(h.seen_at, excluded.seen_at);
    return lakelog.ms(v_at);
end
$$;

CREATE FUNCTION lakelog.history_extend(p_table text, p_now bigint) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
declare
    v_lengths record := lakelog.history_lengths(p_table);
    v_name text;
    v_number bigint;
    v_dropped integer := 0;
begin
    if v_lengths.width is null then
        raise exception 'There is no history table %', p_table;
    end if;
    for v_number in p_now / v_lengths.width .. p_now / v_lengths.width + 1 loop
        v_name := format('lakelog.%I', p_table || '_' || v_number);
        if to_regclass(v_name) is null then
            perform pg_advisory_xact_lock(lakelog.lock_key(-7));
            if to_regclass(v_name) is null then
                execute format('create table %s (like lakelog.%I including all) '
                               'with (autovacuum_vacuum_insert_threshold = -1)', v_name, p_table);
                execute format('alter table lakelog.%I attach partition %s for values from (%s) to (%s)',
                               p_table, v_name, v_number * v_lengths.width, (v_number + 1) * v_lengths.width);
            end if;
        end if;
    end loop;
    perform set_config('lock_timeout', '100ms', true);
    for v_number, v_name in
        select n.number, format('lakelog.%I', c.relname)
        from pg_inherits i join pg_class c on c.oid = i.inhrelid
        cross join lateral (select substring(c.relname from '[0-9]+$')::bigint as number) n
        where i.inhparent = format('lakelog.%I', p_table)::regclass
          and (n.number + 1) * v_lengths.width <= p_now - v_lengths.kept
        order by 1
    loop
        execute format('drop table %s', v_name);
        v_dropped := v_dropped + 1;
    end loop;
    return v_dropped;
exception
    when lock_not_available then
        return 0;
end
$_$;

CREATE FUNCTION lakelog.history_lengths(p_table text, OUT width bigint, OUT kept bigint) RETURNS record
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select l.width, l.kept from (values
        ('sample_minute', 1440::bigint, 2 * 1440::bigint),
        ('sample_ten_minutes', 1440, 30 * 1440),
        ('sample_hour', 30 * 1440, 400 * 1440),
        ('incident', 86400000, 30 * 86400000::bigint)
    ) as l (name, width, kept) where l.name = p_table
$$;

CREATE FUNCTION lakelog.hot_batch_at(p_pid bigint, p_offset bigint) RETURNS TABLE(end_offset bigint, count integer, bytes_start bigint, bytes_end bigint, appended_at timestamp with time zone, epoch integer)
    LANGUAGE plpgsql STABLE
    AS $_$
declare
    v_roll integer;
begin
    select s.roll into v_roll from lakelog.span s
    where s.pid = p_pid and s.first_offset <= p_offset order by s.first_offset desc limit 1;
    if v_roll is not null then
        return query execute format(
            'select b.end_offset, b.count, b.bytes_end - octet_length(b.payload), b.bytes_end, b.appended_at, b.epoch '
            'from (select * from lakelog.%I where pid = $1 and end_offset > $2 order by end_offset limit 1) b '
            'where b.end_offset - b.count <= $2', 'hot_' || v_roll
        ) using p_pid, p_offset;
    end if;
end
$_$;

CREATE FUNCTION lakelog.hot_table_create(p_roll integer, p_kept boolean) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
    v_table text := 'hot_' || p_roll;
begin
    execute format(
        'create table lakelog.%I ('
        'pid bigint not null, end_offset bigint not null, count integer not null, bytes_end bigint not null, '
        'appended_at timestamptz not null, epoch integer not null, format smallint not null default 1, '
        'payload bytea not null, primary key (pid, end_offset)) '
        'with (autovacuum_enabled = %s, toast.autovacuum_enabled = %s)', v_table, p_kept, p_kept);
    execute format('alter table lakelog.%I alter payload set storage external', v_table);
    execute format('grant select, insert on lakelog.%I to lakelog_service', v_table);
    insert into lakelog.roll (roll, kept) values (p_roll, p_kept);
end
$$;

CREATE FUNCTION lakelog.iceberg_commit(p_incarnation bigint, p_version bigint, p_metadata text, p_added text[], p_removed text[], p_oldest bigint) RETURNS boolean
    LANGUAGE sql
    AS $$
    select lakelog.iceberg_commit(p_incarnation, 'messages', p_version, p_metadata, p_added, p_removed, p_oldest)
$$;

CREATE FUNCTION lakelog.iceberg_commit(p_incarnation bigint, p_kind text, p_version bigint, p_metadata text, p_added text[], p_removed text[], p_oldest bigint) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
begin
    perform from lakelog.topic where incarnation = p_incarnation and deleted_at is null for share;
    if not found then
        return false;
    end if;
    if p_version = 0 then
        insert into lakelog.iceberg_table (incarnation, kind, version, metadata)
        values (p_incarnation, p_kind, 1, p_metadata) on conflict do nothing;
    else
        update lakelog.iceberg_table set version = version + 1, metadata = p_metadata, committed_at = clock_timestamp()
        where incarnation = p_incarnation and kind = p_kind and version = p_version;
    end if;
    if not found then
        return exists (
            select from lakelog.iceberg_table
            where incarnation = p_incarnation and kind = p_kind and metadata = p_metadata
        );
    end if;
    insert into lakelog.iceberg_file (path, incarnation, kind, added)
    select path, p_incarnation, p_kind, p_version + 1 from unnest(p_added) as u (path);
    update lakelog.iceberg_file set removed = p_version + 1
    where incarnation = p_incarnation and kind = p_kind and path = any (p_removed) and removed is null;
    delete from lakelog.iceberg_file where incarnation = p_incarnation and kind = p_kind and removed < p_oldest;
    return true;
end
$$;

CREATE TABLE lakelog.journal (
    group_id bigint NOT NULL,
    pid bigint NOT NULL,
    version bigint NOT NULL,
    snapshot_version bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    format smallint DEFAULT 1 NOT NULL,
    body bytea NOT NULL,
    nonce bigint DEFAULT 0 NOT NULL
)
WITH (toast_tuple_target='8160', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='50000', autovacuum_vacuum_cost_delay='0', autovacuum_vacuum_insert_scale_factor='0', autovacuum_vacuum_insert_threshold='1000000', toast.autovacuum_vacuum_threshold='2000');
ALTER TABLE ONLY lakelog.journal ALTER COLUMN body SET STORAGE EXTERNAL;

CREATE FUNCTION lakelog.journal_cut(p_newest lakelog.journal, p_before timestamp with time zone, p_limit bigint) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
declare
    v_snapshot bigint := p_newest.snapshot_version;
    v_low bigint := 0;
    v_high bigint := p_newest.version;
    v_middle bigint;
    v_at timestamptz;
    v_trimmed bigint;
begin
    perform 1 from lakelog.journal
    where group_id = p_newest.group_id and pid = p_newest.pid and version = v_snapshot - 1;
    if not found then
        return 0;
    end if;
    if p_newest.at >= p_before then
        -- Binary search for the newest row of that age. A missing version was trimmed, so it is older.
        while v_high - v_low > 1 loop
            v_middle := (v_low + v_high) / 2;
            select at into v_at from lakelog.journal
            where group_id = p_newest.group_id and pid = p_newest.pid and version = v_middle;
            if v_at >= p_before then
                v_high := v_middle;
            else
                v_low := v_middle;
            end if;
        end loop;
        select snapshot_version into v_snapshot from lakelog.journal
        where group_id = p_newest.group_id and pid = p_newest.pid and version = v_low;
        if v_snapshot is null then
            return 0;
        end if;
    end if;
    v_low := 0;
    v_high := v_snapshot;
    -- Binary search for the oldest row: trimming always removes the beginning.
    while v_high - v_low > 1 loop
        v_middle := (v_low + v_high) / 2;
        perform 1 from lakelog.journal
        where group_id = p_newest.group_id and pid = p_newest.pid and version = v_middle;
        if found then
            v_high := v_middle;
        else
            v_low := v_middle;
        end if;
    end loop;
    delete from lakelog.journal
    where group_id = p_newest.group_id and pid = p_newest.pid
      and version >= v_high and version < least(v_snapshot, v_high + p_limit);
    get diagnostics v_trimmed = row_count;
    return v_trimmed;
end
$$;

CREATE FUNCTION lakelog.journal_drop(p_group bigint, p_pid bigint, p_limit bigint) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
declare
    v_letters bigint;
    v_rows bigint;
begin
    delete from lakelog.dead_letter where ctid = any (array(
        select ctid from lakelog.dead_letter where group_id = p_group and pid = p_pid limit p_limit));
    get diagnostics v_letters = row_count;
    delete from lakelog.journal where ctid = any (array(
        select ctid from lakelog.journal where group_id = p_group and pid = p_pid
        order by version limit p_limit - v_letters));
    get diagnostics v_rows = row_count;
    return v_letters + v_rows;
end
$$;

CREATE FUNCTION lakelog.journals_commit(p_groups bigint[], p_pids bigint[], p_versions bigint[], p_snapshots boolean[], p_bodies bytea[], p_not_before bigint[], p_not_after bigint[], d_parts integer[] DEFAULT '{}'::integer[], d_offsets bigint[] DEFAULT '{}'::bigint[], d_epochs integer[] DEFAULT '{}'::integer[], d_deliveries integer[] DEFAULT '{}'::integer[], d_failures integer[] DEFAULT '{}'::integer[], d_reasons text[] DEFAULT '{}'::text[], d_owners text[] DEFAULT '{}'::text[], d_payloads bytea[] DEFAULT '{}'::bytea[], OUT clock_ms bigint, OUT statuses smallint[]) RETURNS record
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION lakelog.journals_commit_dead(p_groups bigint[], p_pids bigint[], p_versions bigint[], p_snapshots boolean[], p_bodies bytea[], p_not_before bigint[], p_not_after bigint[], d_parts integer[], d_offsets bigint[], d_epochs integer[], d_deliveries integer[], d_failures integer[], d_reasons text[], d_owners text[], d_payloads bytea[], d_tracebacks text[], OUT clock_ms bigint, OUT statuses smallint[]) RETURNS record
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION lakelog.journals_commit_without_nonces(p_groups bigint[], p_pids bigint[], p_versions bigint[], p_snapshots boolean[], p_bodies bytea[], p_not_before bigint[], p_not_after bigint[], d_parts integer[] DEFAULT '{}'::integer[], d_offsets bigint[] DEFAULT '{}'::bigint[], d_epochs integer[] DEFAULT '{}'::integer[], d_deliveries integer[] DEFAULT '{}'::integer[], d_failures integer[] DEFAULT '{}'::integer[], d_reasons text[] DEFAULT '{}'::text[], d_owners text[] DEFAULT '{}'::text[], d_payloads bytea[] DEFAULT '{}'::bytea[], OUT clock_ms bigint, OUT statuses smallint[]) RETURNS record
    LANGUAGE plpgsql
    AS $$
declare
    v_at timestamptz := clock_timestamp();
    v_ms bigint := lakelog.ms(v_at);
    v_until bigint;
begin
    with asked as materialized (
        select u.*, coalesce(n.snapshot_version, 0) as last_snapshot,
               case
                   when coalesce(n.version, 0) <> u.version - 1 then 1
                   when v_ms between u.not_before and u.not_after then 0
                   else 2
               end::smallint as status
        from unnest(p_groups, p_pids, p_versions, p_snapshots, p_bodies, p_not_before, p_not_after) with ordinality
            as u (group_id, pid, version, snapshot, body, not_before, not_after, part)
        left join lateral (
            select j.version, j.snapshot_version from lakelog.journal j
            where j.group_id = u.group_id and j.pid = u.pid order by j.version desc limit 1
        ) n on true
    ), written as (
        insert into lakelog.journal as j (group_id, pid, version, snapshot_version, at, body)
        select a.group_id, a.pid, a.version, case when a.snapshot then a.version else a.last_snapshot end, v_at, a.body
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
        -- The insert waited for another writer of the same version, which rolled back, and its time has passed.
        statuses := lakelog.journals_withdraw(p_groups, p_pids, p_versions, p_not_after, statuses, clock_ms);
    end if;
    if cardinality(d_parts) > 0 then
        insert into lakelog.dead_letter
            (group_id, pid, message_offset, epoch, at, deliveries, failures, reason, owner, payload)
        select p_groups[d.part], p_pids[d.part], d.message_offset, d.epoch, v_at,
               d.deliveries, d.failures, d.reason, d.owner, d.payload
        from unnest(d_parts, d_offsets, d_epochs, d_deliveries, d_failures, d_reasons, d_owners, d_payloads)
            as d (part, message_offset, epoch, deliveries, failures, reason, owner, payload)
        where statuses[d.part] = 0
        on conflict do nothing;
    end if;
end
$$;

CREATE FUNCTION lakelog.journals_trim(p_grace interval, p_dropped bigint[], p_limit bigint) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
declare
    v_before timestamptz := clock_timestamp() - p_grace;
    v_newest lakelog.journal;
    v_group bigint := 9223372036854775807;
    v_pid bigint := 9223372036854775807;
    v_state smallint;
    v_rows bigint;
    v_trimmed bigint := 0;
begin
    if not pg_try_advisory_xact_lock(lakelog.lock_key(-2)) then
        return 0;
    end if;
    while v_trimmed < p_limit loop
        select * into v_newest from lakelog.journal where (group_id, pid) < (v_group, v_pid)
        order by group_id desc, pid desc, version desc limit 1;
        exit when not found;
        v_group := v_newest.group_id;
        v_pid := v_newest.pid;
        select state into v_state from lakelog.head where pid = v_pid order by version desc limit 1;
        if v_state is null and exists (select from lakelog.closed_topic c where c.incarnation = v_pid >> 16) then
            v_state := 2;
        end if;
        if v_state = 2 or v_group = any (p_dropped) then
            v_trimmed := v_trimmed + lakelog.journal_drop(v_group, v_pid, p_limit - v_trimmed);
        else
            v_trimmed := v_trimmed + lakelog.journal_cut(v_newest, v_before, p_limit - v_trimmed);
        end if;
    end loop;
    delete from lakelog.members old
    where old.group_id = any (p_dropped) or exists (
        select from lakelog.members next
        where next.group_id = old.group_id and next.version = old.version + 1 and next.at < v_before);
    get diagnostics v_rows = row_count;
    delete from lakelog.heartbeat where group_id = any (p_dropped) or seen_at < clock_timestamp() - interval '1 day';
    return v_trimmed + v_rows;
end
$$;

CREATE FUNCTION lakelog.journals_trim_some(p_grace interval, p_dropped bigint[], p_limit bigint, p_journals integer, p_group bigint, p_pid bigint, OUT trimmed bigint, OUT next_group bigint, OUT next_pid bigint) RETURNS record
    LANGUAGE plpgsql
    AS $$
declare
    v_before timestamptz := clock_timestamp() - p_grace;
    v_newest lakelog.journal;
    v_state smallint;
    v_rows bigint;
begin
    if not pg_try_advisory_xact_lock(lakelog.lock_key(-2)) then
        return;
    end if;
    trimmed := 0;
    for i in 1 .. p_journals loop
        select * into v_newest from lakelog.journal where (group_id, pid) < (p_group, p_pid)
        order by group_id desc, pid desc, version desc limit 1;
        if not found then
            next_group := null;
            exit;
        end if;
        select state into v_state from lakelog.head where pid = v_newest.pid order by version desc limit 1;
        if v_state is null and exists (select from lakelog.closed_topic c where c.incarnation = v_newest.pid >> 16) then
            v_state := 2;
        end if;
        if v_state = 2 or v_newest.group_id = any (p_dropped) then
            v_rows := lakelog.journal_drop(v_newest.group_id, v_newest.pid, p_limit - trimmed);
        else
            v_rows := lakelog.journal_cut(v_newest, v_before, p_limit - trimmed);
        end if;
        trimmed := trimmed + v_rows;
        next_group := p_group;
        next_pid := p_pid;
        exit when trimmed >= p_limit;  -- Rows of this journal may be left.
        p_group := v_newest.group_id;
        p_pid := v_newest.pid;
        next_group := p_group;
        next_pid := p_pid;
    end loop;
    if next_group is not null then
        return;
    end if;
    delete from lakelog.members where ctid = any (array(
        select old.ctid from lakelog.members old
        where old.group_id = any (p_dropped) or exists (
            select from lakelog.members next
            where next.group_id = old.group_id and next.version = old.version + 1 and next.at < v_before)
        limit p_limit));
    get diagnostics v_rows = row_count;
    trimmed := trimmed + v_rows;
    delete from lakelog.heartbeat where ctid = any (array(
        select h.ctid from lakelog.heartbeat h
        where h.group_id = any (p_dropped) or h.seen_at < clock_timestamp() - interval '1 day' limit p_limit));
end
$$;

CREATE FUNCTION lakelog.journals_withdraw(p_groups bigint[], p_pids bigint[], p_versions bigint[], p_not_after bigint[], p_statuses smallint[], p_ms bigint) RETURNS smallint[]
    LANGUAGE plpgsql
    AS $$
begin
    for i in 1 .. cardinality(p_statuses) loop
        if p_statuses[i] = 0 and p_not_after[i] < p_ms then
            delete from lakelog.journal
            where group_id = p_groups[i] and pid = p_pids[i] and version = p_versions[i];
            p_statuses[i] := 2;
        end if;
    end loop;
    return p_statuses;
end
$$;

CREATE FUNCTION lakelog.journals_write(p_groups bigint[], p_pids bigint[], p_versions bigint[], p_nonces bigint[], p_after_nonces bigint[], p_snapshots boolean[], p_bodies bytea[], p_not_before bigint[], p_not_after bigint[], d_parts integer[] DEFAULT '{}'::integer[], d_offsets bigint[] DEFAULT '{}'::bigint[], d_epochs integer[] DEFAULT '{}'::integer[], d_deliveries integer[] DEFAULT '{}'::integer[], d_failures integer[] DEFAULT '{}'::integer[], d_reasons text[] DEFAULT '{}'::text[], d_owners text[] DEFAULT '{}'::text[], d_payloads bytea[] DEFAULT '{}'::bytea[], d_tracebacks text[] DEFAULT '{}'::text[], OUT clock_ms bigint, OUT statuses smallint[]) RETURNS record
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION lakelog.journals_write_noted(p_groups bigint[], p_pids bigint[], p_versions bigint[], p_nonces bigint[], p_after_nonces bigint[], p_snapshots boolean[], p_bodies bytea[], p_not_before bigint[], p_not_after bigint[], d_parts integer[], d_offsets bigint[], d_epochs integer[], d_deliveries integer[], d_failures integer[], d_reasons text[], d_owners text[], d_payloads bytea[], d_tracebacks text[], o_parts integer[], o_incarnations bigint[], o_hashes bytea[], d_fingerprints bigint[], i_parts integer[], i_offsets bigint[], i_epochs integer[], i_kinds smallint[], i_deliveries integer[], i_failures integer[], i_owners text[], i_leased bigint[], i_due bigint[], i_fingerprints bigint[], i_left_out integer[], i_reasons text[], i_tracebacks text[], OUT clock_ms bigint, OUT statuses smallint[], OUT taken integer[]) RETURNS record
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
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

CREATE FUNCTION lakelog.journals_write_once(p_groups bigint[], p_pids bigint[], p_versions bigint[], p_nonces bigint[], p_after_nonces bigint[], p_snapshots boolean[], p_bodies bytea[], p_not_before bigint[], p_not_after bigint[], d_parts integer[], d_offsets bigint[], d_epochs integer[], d_deliveries integer[], d_failures integer[], d_reasons text[], d_owners text[], d_payloads bytea[], d_tracebacks text[], o_parts integer[], o_incarnations bigint[], o_hashes bytea[], OUT clock_ms bigint, OUT statuses smallint[], OUT taken integer[]) RETURNS record
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
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

CREATE FUNCTION lakelog.keys_trim_long(p_limit bigint, OUT appends bigint, OUT reservations bigint) RETURNS record
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION lakelog.lock_key(p_pid bigint) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ('5497628094138482688'::bigint + p_pid);

CREATE FUNCTION lakelog.lock_partitions(p_pids bigint[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
    v_pid bigint;
begin
    foreach v_pid in array p_pids loop
        perform pg_advisory_xact_lock(lakelog.lock_key(v_pid));
    end loop;
end
$$;

CREATE FUNCTION lakelog.log_start_raise(p_pids bigint[], p_starts bigint[]) RETURNS TABLE(pid bigint, removed bigint)
    LANGUAGE plpgsql
    AS $$
begin
    perform lakelog.lock_partitions(p_pids);
    return query
    with newest as materialized (
        select h.*, least(greatest(a.start, h.log_start), h.next_offset) as new_start
        from unnest(p_pids, p_starts) as a (pid, start)
        cross join lateral (select * from lakelog.head x where x.pid = a.pid order by x.version desc limit 1) h
    ), raised as (
        insert into lakelog.head (pid, version, next_offset, log_start, total_bytes, appended_at, roll, epoch, state)
        select n.pid, n.version + 1, n.next_offset, n.new_start, n.total_bytes, n.appended_at, n.roll, n.epoch, n.state
        from newest n where n.new_start > n.log_start
    )
    select n.pid, n.new_start - n.log_start from newest n;
end
$$;

CREATE FUNCTION lakelog.members_write(p_group bigint, p_version bigint, p_body bytea) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
begin
    insert into lakelog.members (group_id, version, at, body)
    select p_group, p_version, clock_timestamp(), p_body
    where p_version - 1 = coalesce((
        select version from lakelog.members where group_id = p_group order by version desc limit 1), 0)
    on conflict do nothing;
    return found;
end
$$;

CREATE FUNCTION lakelog.ms(p_time timestamp with time zone) RETURNS bigint
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN (floor((date_part('epoch'::text, p_time) * (1000)::double precision)))::bigint;

CREATE FUNCTION lakelog.offset_search(p_pid bigint, p_time timestamp with time zone, p_max_bytes bigint) RETURNS bigint
    LANGUAGE plpgsql STABLE
    AS $$
declare
    v_low bigint;
    v_high bigint;
    v_middle bigint;
    v_bytes bigint;
    v_segment record;
    v_batch record;
begin
    select log_start, next_offset, total_bytes - p_max_bytes into v_low, v_high, v_bytes
    from lakelog.head where pid = p_pid order by version desc limit 1;
    while v_low < v_high loop
        v_middle := (v_low + v_high) / 2;
        select * into v_segment from lakelog.segment s
        where s.pid = p_pid and s.end_offset > v_middle order by s.end_offset limit 1;
        if v_segment.first_offset <= v_middle and v_segment.verified_at is not null then
            if v_segment.last_at >= p_time or v_segment.bytes_end > v_bytes then
                v_high := v_segment.first_offset;
            else
                v_low := v_segment.end_offset;
            end if;
            continue;
        end if;
        select * into strict v_batch from lakelog.hot_batch_at(p_pid, v_middle);
        if v_batch.appended_at >= p_time or v_batch.bytes_start >= v_bytes then
            v_high := v_batch.end_offset - v_batch.count;
        else
            v_low := v_batch.end_offset;
        end if;
    end loop;
    return v_low;
end
$$;

CREATE FUNCTION lakelog.once_find(p_group bigint, p_incarnation bigint, p_hashes bytea[]) RETURNS SETOF bytea
    LANGUAGE plpgsql STABLE
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
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

CREATE FUNCTION lakelog.once_memory() RETURNS interval
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN '24:00:00'::interval;

CREATE FUNCTION lakelog.outbox_reject(r_outbox bigint, r_epoch bigint, r_numbers bigint[], r_salts integer[], p_environment bigint, p_message_ids text[], p_topics text[], p_codes text[], p_reasons text[], p_partitions integer[], p_payloads bytea[]) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
begin
    if not lakelog.relay_is_current(r_outbox, r_epoch) then
        return false;
    end if;
    insert into lakelog.rejected_message
        (environment_id, message_id, source, topic, code, reason, partition, payload, rejected_at)
    select p_environment, m.message_id, 'outbox', m.topic, m.code, m.reason, m.partition, m.payload, clock_timestamp()
    from unnest(p_message_ids, p_topics, p_codes, p_reasons, p_partitions, p_payloads) with ordinality
        as m (message_id, topic, code, reason, partition, payload, place)
    order by m.place
    on conflict (environment_id, message_id) do nothing;
    perform lakelog.relayed_write(
        r_outbox, array_fill(0::bigint, array[cardinality(r_numbers)]), r_numbers, r_salts, array[0::bigint], array[0::bigint]);
    return true;
end
$$;

CREATE FUNCTION lakelog.partitions_remove(p_grace interval, p_limit integer) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
declare
    v_pids bigint[];
begin
    select array_agg(d.pid) into v_pids from (
        select c.pid from lakelog.closed_partition c
        where c.closed_at < clock_timestamp() - p_grace
          and not exists (select from lakelog.segment g where g.pid = c.pid)
        order by c.closed_at, c.pid limit p_limit
    ) d;
    if v_pids is null then
        return 0;
    end if;
    perform pg_advisory_xact_lock(lakelog.lock_key(0));
    insert into lakelog.closed_topic (incarnation) select distinct u.pid >> 16 from unnest(v_pids) as u (pid)
    on conflict do nothing;
    delete from lakelog.head where pid = any (v_pids);
    delete from lakelog.partition where pid = any (v_pids);
    delete from lakelog.closed_partition where pid = any (v_pids);
    return cardinality(v_pids);
end
$$;

CREATE TABLE lakelog.partition (
    pid bigint NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

CREATE FUNCTION lakelog.partitions_walk(p_after bigint, p_partitions integer) RETURNS bigint
    LANGUAGE sql STABLE
    RETURN (SELECT p.pid FROM lakelog.partition p WHERE (p.pid > partitions_walk.p_after) ORDER BY p.pid OFFSET (partitions_walk.p_partitions - 1) LIMIT 1);

CREATE FUNCTION lakelog.period_begin(p_length interval) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
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
$_$;

CREATE FUNCTION lakelog.period_empty() RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

CREATE FUNCTION lakelog.period_memory() RETURNS interval
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN '25:00:00'::interval;

CREATE FUNCTION lakelog.period_slots(OUT active smallint, OUT used smallint[]) RETURNS record
    LANGUAGE sql STABLE
    AS $$
    select max(p.slot) filter (where p.ended_at is null), array_agg(p.slot) || 5::smallint
    from lakelog.period p where p.began_at is not null
$$;

CREATE TABLE lakelog.pipeline_run (
    run_id text NOT NULL,
    environment_id bigint NOT NULL,
    pipeline text NOT NULL,
    topic text NOT NULL,
    host text NOT NULL,
    state text DEFAULT 'running'::text NOT NULL,
    started_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    seen_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    ended_at timestamp with time zone,
    progress jsonb DEFAULT '{}'::jsonb NOT NULL,
    detail text DEFAULT ''::text NOT NULL,
    CONSTRAINT pipeline_run_state_check CHECK ((state = ANY (ARRAY['running'::text, 'done'::text, 'failed'::text, 'lost'::text])))
);

CREATE FUNCTION lakelog.pipeline_begin(p_environment bigint, p_run text, p_pipeline text, p_topic text, p_host text, p_alive interval, p_kept integer) RETURNS SETOF lakelog.pipeline_run
    LANGUAGE plpgsql
    AS $$
begin
    update lakelog.pipeline_run set state = 'lost', ended_at = seen_at
    where environment_id = p_environment and pipeline = p_pipeline and topic = p_topic and state = 'running'
      and seen_at < clock_timestamp() - p_alive and run_id <> p_run;
    delete from lakelog.pipeline_run old using (
        select run_id from lakelog.pipeline_run
        where environment_id = p_environment and pipeline = p_pipeline and topic = p_topic and state <> 'running'
        order by started_at desc offset p_kept
    ) forgotten
    where old.run_id = forgotten.run_id;
    insert into lakelog.pipeline_run (run_id, environment_id, pipeline, topic, host)
    values (p_run, p_environment, p_pipeline, p_topic, p_host)
    on conflict do nothing;
    return query
        select * from lakelog.pipeline_run
        where environment_id = p_environment
          and (run_id = p_run or (pipeline = p_pipeline and topic = p_topic and state = 'running'))
        order by run_id = p_run desc limit 1;
end
$$;

CREATE FUNCTION lakelog.producer_find(p_pid bigint, p_producer bytea, p_slots smallint[], p_now timestamp with time zone) RETURNS TABLE(last bigint, offsets bigint[])
    LANGUAGE sql STABLE
    AS $$
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

CREATE FUNCTION lakelog.producers_trim(p_memory interval) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
declare
    v_trimmed bigint;
begin
    with doomed as (
        delete from lakelog.producer_batch old
        using (
            select pid, producer, max(sequence) as last, max(at) as last_at from lakelog.producer_batch group by pid, producer
        ) newest
        where old.pid = newest.pid and old.producer = newest.producer
          and (old.sequence <= newest.last - 5 or newest.last_at < clock_timestamp() - p_memory)
        returning 1
    )
    select count(*) into v_trimmed from doomed;
    return v_trimmed;
end
$$;

CREATE FUNCTION lakelog.producers_trim_some(p_memory interval, p_after bigint, p_partitions integer, p_rows bigint, OUT next_after bigint, OUT trimmed bigint) RETURNS record
    LANGUAGE plpgsql
    AS $$
declare
    v_until bigint := lakelog.partitions_walk(p_after, p_partitions);
begin
    delete from lakelog.producer_batch where ctid = any (array(
        select old.ctid from (
            select pid, producer, max(sequence) as last, max(at) as last_at from lakelog.producer_batch
            where pid > p_after and pid <= coalesce(v_until, 9223372036854775807) group by pid, producer
        ) newest
        cross join lateral (
            select b.ctid from lakelog.producer_batch b
            where b.pid = newest.pid and b.producer = newest.producer
              and (b.sequence <= newest.last - 5 or newest.last_at < clock_timestamp() - p_memory)
        ) old
        limit p_rows
    ));
    get diagnostics trimmed = row_count;
    next_after := case when trimmed = p_rows then p_after else v_until end;
end
$$;

CREATE FUNCTION lakelog.producers_trim_superseded(p_after bigint, p_partitions integer, p_rows bigint, OUT next_after bigint, OUT trimmed bigint) RETURNS record
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION lakelog.promote(p_pid bigint, p_write text, p_attempts text[], OUT status smallint, OUT base bigint, OUT count bigint, OUT appended_at timestamp with time zone) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    v_head lakelog.head;
    v_count bigint;
    v_bytes bigint;
    v_last integer;
    v_roll integer;
begin
    perform pg_advisory_xact_lock(lakelog.lock_key(p_pid));
    -- A separate statement: a snapshot from before the lock would miss the newest head.
    select * into v_head from lakelog.head h where h.pid = p_pid order by h.version desc limit 1;
    status := case
        when v_head.pid is not null then case v_head.state when 2 then 3 else v_head.state * 2 end
        when exists (select from lakelog.closed_topic c where c.incarnation = p_pid >> 16) then 3
        else 1
    end;
    if status in (1, 2) then
        return;
    end if;
    select m.base_offset, m.count, m.at into base, count, appended_at
    from lakelog.promoted m where m.pid = p_pid and m.write_id = p_write;
    if base is not null or status <> 0 then
        return;
    end if;
    select sum(s.count), sum(s.bytes) into v_count, v_bytes
    from lakelog.staged s where s.pid = p_pid and s.write_id = p_write and s.attempt = any (p_attempts);
    if v_count is null then
        return;
    end if;
    base := v_head.next_offset;
    count := v_count;
    appended_at := greatest(v_head.appended_at, clock_timestamp());
    insert into lakelog.promoted (pid, write_id, base_offset, count, at) values (p_pid, p_write, base, v_count, appended_at);
    v_last := lakelog.promote_spans(v_head, p_write, p_attempts);
    for v_roll in
        select distinct s.roll from lakelog.staged s
        where s.pid = p_pid and s.write_id = p_write and s.attempt = any (p_attempts)
    loop
        perform lakelog.promote_roll(v_head, v_roll, p_write, p_attempts, appended_at);
    end loop;
    delete from lakelog.staged s where s.pid = p_pid and s.write_id = p_write and s.attempt = any (p_attempts);
    -- The number of the last hot table, which may be an old one: the next append then begins a span in the active one.
    insert into lakelog.head (pid, version, next_offset, log_start, total_bytes, appended_at, roll, epoch, state)
    values (p_pid, v_head.version + 1, v_head.next_offset + v_count, v_head.log_start, v_head.total_bytes + v_bytes,
            promote.appended_at, v_last, v_head.epoch, v_head.state);
end
$$;

CREATE TABLE lakelog.head (
    pid bigint NOT NULL,
    version bigint NOT NULL,
    next_offset bigint NOT NULL,
    log_start bigint NOT NULL,
    total_bytes bigint NOT NULL,
    appended_at timestamp with time zone NOT NULL,
    roll integer NOT NULL,
    epoch integer NOT NULL,
    state smallint NOT NULL,
    format smallint DEFAULT 1 NOT NULL
);

CREATE FUNCTION lakelog.promote_roll(p_head lakelog.head, p_roll integer, p_write text, p_attempts text[], p_at timestamp with time zone) RETURNS void
    LANGUAGE plpgsql
    AS $_$
begin
    execute format(
        'update lakelog.%I h set pid = $1, end_offset = $4 + p.last, bytes_end = $5 + p.bytes, appended_at = $6, epoch = $7 '
        'from (select s.slot, s.roll, sum(s.count) over w as last, sum(s.bytes) over w as bytes '
        'from lakelog.staged s join unnest($3::text[]) with ordinality as a (attempt, part) on a.attempt = s.attempt '
        'where s.pid = $1 and s.write_id = $2 window w as (order by a.part, s.number)) p '
        'where h.pid = -p.slot and p.roll = $8', 'hot_' || p_roll
    ) using p_head.pid, p_write, p_attempts, p_head.next_offset, p_head.total_bytes, p_at, p_head.epoch, p_roll;
end
$_$;

CREATE FUNCTION lakelog.promote_spans(p_head lakelog.head, p_write text, p_attempts text[]) RETURNS integer
    LANGUAGE plpgsql
    AS $$
declare
    v_active integer;
    v_last integer;
begin
    select max(r.roll) into strict v_active from lakelog.roll r;
    with placed as (
        select s.roll, row_number() over w as place, lag(s.roll) over w as before,
               p_head.next_offset + sum(s.count) over w - s.count as first_offset
        from lakelog.staged s join unnest(p_attempts) with ordinality as a (attempt, part) on a.attempt = s.attempt
        where s.pid = p_head.pid and s.write_id = p_write
        window w as (order by a.part, s.number)
    ), spans as (
        insert into lakelog.span (pid, first_offset, roll)
        select p_head.pid, p.first_offset, p.roll from placed p
        where p.roll is distinct from p.before
          and (p.place > 1 or p.roll <> v_active or p.roll <> p_head.roll)
        on conflict (pid, first_offset) do update set roll = excluded.roll
    )
    select p.roll into v_last from placed p order by p.place desc limit 1;
    return v_last;
end
$$;

CREATE FUNCTION lakelog.redrive(r_group bigint, r_offsets bigint[], r_epochs integer[], p_roll integer, p_pids bigint[], p_epochs integer[], p_counts integer[], p_bytes bigint[], q_pids bigint[], q_producers bytea[], q_sequences bigint[], q_starts integer[], q_counts integer[], k_pids bigint[], k_hashes bytea[], k_starts integer[]) RETURNS SETOF lakelog.append_answer
    LANGUAGE plpgsql
    AS $$
declare
    v_key record;
    v_state smallint;
    v_refused boolean := false;
    v_answer lakelog.append_answer;
begin
    -- Rows are locked in order, which prevents deadlocks between two redrives.
    for v_key in
        select r.* from unnest(r_offsets, r_epochs) with ordinality as r (message_offset, epoch, part) order by 1, 2
    loop
        select d.state into v_state from lakelog.dead_letter d
        where d.group_id = r_group and d.pid = p_pids[1]
          and d.message_offset = v_key.message_offset and d.epoch = v_key.epoch
        for update;
        if v_state is distinct from 0 then
            v_refused := true;
            return next (p_pids[1], 6, null, null, null, null, null, null, v_key.part - 1, null, null)::lakelog.append_answer;
        end if;
    end loop;
    if v_refused then
        return;
    end if;
    for v_answer in
        select * from lakelog.append(p_roll, p_pids, p_epochs, p_counts, p_bytes, q_pids, q_producers, q_sequences,
                                     q_starts, q_counts, k_pids, k_hashes, k_starts)
    loop
        if v_answer.status = 0 then
            for i in 1 .. cardinality(r_offsets) loop
                update lakelog.dead_letter set state = 1, redriven_to = v_answer.base + i - 1
                where group_id = r_group and pid = p_pids[1] and message_offset = r_offsets[i] and epoch = r_epochs[i];
            end loop;
        end if;
        return next v_answer;
    end loop;
end
$$;

CREATE FUNCTION lakelog.relay(r_outbox bigint, r_epoch bigint, r_pids bigint[], r_numbers bigint[], r_salts integer[], p_roll integer, p_pids bigint[], p_epochs integer[], p_counts integer[], p_bytes bigint[], q_pids bigint[], q_producers bytea[], q_sequences bigint[], q_starts integer[], q_counts integer[], k_pids bigint[], k_hashes bytea[], k_starts integer[]) RETURNS SETOF lakelog.append_answer
    LANGUAGE plpgsql
    AS $$
declare
    v_answer lakelog.append_answer;
    v_pids bigint[] := '{}';
    v_bases bigint[] := '{}';
begin
    if not lakelog.relay_is_current(r_outbox, r_epoch) then
        return query select p.pid, 7::smallint, null::bigint, null::bigint, null::timestamptz, null::integer, null::integer,
                            null::boolean, null::integer, null::smallint, null::bigint
                     from unnest(p_pids) as p (pid);
        return;
    end if;
    for v_answer in
        select * from lakelog.append(p_roll, p_pids, p_epochs, p_counts, p_bytes, q_pids, q_producers, q_sequences,
                                     q_starts, q_counts, k_pids, k_hashes, k_starts)
    loop
        if v_answer.status = 0 then
            v_pids := v_pids || v_answer.pid;
            v_bases := v_bases || v_answer.base;
        end if;
        return next v_answer;
    end loop;
    perform lakelog.relayed_write(r_outbox, r_pids, r_numbers, r_salts, v_pids, v_bases);
end
$$;

CREATE FUNCTION lakelog.relay_is_current(r_outbox bigint, r_epoch bigint) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
begin
    return (select o.epoch from lakelog.outbox_relay o where o.outbox_id = r_outbox for update) is not distinct from r_epoch;
end
$$;

CREATE FUNCTION lakelog.relayed_write(r_outbox bigint, r_pids bigint[], r_numbers bigint[], r_salts integer[], p_pids bigint[], p_bases bigint[]) RETURNS void
    LANGUAGE sql
    AS $$
    insert into lakelog.relayed (outbox_id, pid, base_offset, numbers, salts, relayed_at, span)
    select r_outbox, r.pid, p.base, array_agg(r.number order by r.place), array_agg(r.salt order by r.place),
           clock_timestamp(), int8range(min(r.number), max(r.number), '[]')
    from unnest(r_pids, r_numbers, r_salts) with ordinality as r (pid, number, salt, place)
    join unnest(p_pids, p_bases) as p (pid, base) on p.pid = r.pid
    group by r.pid, p.base
$$;

CREATE FUNCTION lakelog.reservation_moved() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
    raise exception 'Reservations are in another table now.' using errcode = 'serialization_failure';
end
$$;

CREATE FUNCTION lakelog.reserve(p_durable boolean, p_incarnations bigint[], p_key_hashes bytea[], p_body_hashes bytea[], p_partitions integer[]) RETURNS TABLE(part integer, body_hash bytea, partition integer)
    LANGUAGE sql
    AS $$
    select * from lakelog.reserve(
        p_durable, p_incarnations, p_key_hashes, p_body_hashes, p_partitions,
        array_fill(interval '1 day 1 minute', array[cardinality(p_key_hashes)]))
$$;

CREATE FUNCTION lakelog.reserve(p_durable boolean, p_incarnations bigint[], p_key_hashes bytea[], p_body_hashes bytea[], p_partitions integer[], p_memories interval[]) RETURNS TABLE(part integer, body_hash bytea, partition integer)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
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

CREATE FUNCTION lakelog.roll_begin(p_expected integer) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    v_roll integer;
begin
    perform pg_advisory_xact_lock(lakelog.lock_key(-3));
    select coalesce(max(roll), 0) into v_roll from lakelog.roll;
    if p_expected is not null and p_expected <> v_roll then
        return v_roll;
    end if;
    if v_roll > 0 then
        execute format(
            'alter table lakelog.%I set (autovacuum_enabled = on, toast.autovacuum_enabled = on, '
            'autovacuum_freeze_min_age = 0, toast.autovacuum_freeze_min_age = 0, '
            'autovacuum_vacuum_insert_threshold = 0, toast.autovacuum_vacuum_insert_threshold = 0, '
            'autovacuum_vacuum_insert_scale_factor = 0, toast.autovacuum_vacuum_insert_scale_factor = 0)',
            'hot_' || v_roll);
    end if;
    v_roll := v_roll + 2;
    perform lakelog.hot_table_create(v_roll, false);
    return v_roll;
end
$$;

CREATE FUNCTION lakelog.roll_drop(p_roll integer, p_grace interval) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    if not lakelog.roll_is_retired(p_roll, p_grace) or exists (select from lakelog.staged s where s.roll = p_roll) then
        return false;
    end if;
    perform set_config('lock_timeout', '100ms', true);
    execute format('lock table lakelog.%I in access exclusive mode', 'hot_' || p_roll);
    if not lakelog.roll_is_retired(p_roll, p_grace) or exists (select from lakelog.staged s where s.roll = p_roll) then
        return false;
    end if;
    execute format('drop table lakelog.%I', 'hot_' || p_roll);
    delete from lakelog.span where roll = p_roll;
    delete from lakelog.roll where roll = p_roll;
    return true;
exception
    when lock_not_available or undefined_table then
        return false;
end
$$;

CREATE FUNCTION lakelog.roll_is_retired(p_roll integer, p_grace interval) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
    select p_roll < (select max(roll) from lakelog.roll) and not exists (
        select from lakelog.span s cross join lateral lakelog.span_survivors(s.pid, s.first_offset, p_grace) w
        where s.roll = p_roll
    )
$$;

CREATE FUNCTION lakelog.roll_keep(p_roll integer, p_grace interval, p_bytes bigint, p_table_bytes bigint) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    v_active integer;
    v_target integer;
    v_span record;
    v_bytes bigint := 0;
begin
    select max(roll) into v_active from lakelog.roll;
    if p_roll >= v_active or not pg_try_advisory_xact_lock(lakelog.lock_key(-4)) then
        return 0;
    end if;
    for v_span in
        select s.pid, s.first_offset from lakelog.span s
        cross join lateral lakelog.span_survivors(s.pid, s.first_offset, p_grace) w
        where s.roll = p_roll order by s.pid, s.first_offset limit 100
    loop
        if v_target is null then
            select r.roll into v_target from lakelog.roll r
            where r.kept and r.roll <> p_roll and pg_total_relation_size(format('lakelog.%I', 'hot_' || r.roll)) < p_table_bytes
            order by r.roll desc limit 1;
        end if;
        if v_target is null then
            v_target := v_active - 1;
            if exists (select from lakelog.roll r where r.roll = v_target) then
                return 0;  -- The next roll makes room for another kept table.
            end if;
            perform lakelog.hot_table_create(v_target, true);
        end if;
        v_bytes := v_bytes + lakelog.span_keep(
            p_roll, v_span.pid, v_span.first_offset, v_target, p_grace, p_bytes - v_bytes);
        exit when v_bytes >= p_bytes;
    end loop;
    return v_bytes;
end
$$;

CREATE FUNCTION lakelog.roll_surviving_bytes(p_roll integer, p_grace interval) RETURNS bigint
    LANGUAGE plpgsql STABLE
    AS $_$
declare
    v_bytes bigint;
begin
    execute format(
        'select coalesce(sum(l.bytes_end - f.bytes_end + octet_length(f.payload)), 0) '
        'from lakelog.span s cross join lateral lakelog.span_survivors(s.pid, s.first_offset, $2) w '
        'cross join lateral (select b.bytes_end, b.payload from lakelog.%1$I b '
        'where b.pid = s.pid and b.end_offset > w.low order by b.end_offset limit 1) f '
        'cross join lateral (select b.bytes_end from lakelog.%1$I b '
        'where b.pid = s.pid and b.end_offset <= w.high order by b.end_offset desc limit 1) l '
        'where s.roll = $1', 'hot_' || p_roll
    ) into v_bytes using p_roll, p_grace;
    return v_bytes;
end
$_$;

CREATE FUNCTION lakelog.runner_elect(p_task text, p_runner text, p_lease interval) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
begin
    -- First without a write: all but one of the callers end here.
    if exists (
        select from lakelog.runner r where r.task = p_task and r.runner <> p_runner and r.until > clock_timestamp()
    ) then
        return false;
    end if;
    perform set_config('synchronous_commit', 'off', true);
    insert into lakelog.runner as r (task, runner, until) values (p_task, p_runner, clock_timestamp() + p_lease)
    on conflict (task) do update set runner = excluded.runner, until = excluded.until
    where r.runner = excluded.runner or r.until <= clock_timestamp();
    return found;
end
$$;

CREATE FUNCTION lakelog.samples_write(p_minute integer, p_groups bigint[], p_incarnations bigint[], p_bodies bytea[]) RETURNS integer
    LANGUAGE plpgsql
    AS $$
declare
    v_series integer[];
    v_written integer;
begin
    perform lakelog.history_extend(t.name, p_minute)
    from unnest(array['sample_minute', 'sample_ten_minutes', 'sample_hour']) as t (name)
    where to_regclass(format('lakelog.%I', t.name || '_' || p_minute / (lakelog.history_lengths(t.name)).width)) is null;
    insert into lakelog.sample_series (group_id, incarnation)
    select u.group_id, u.incarnation from unnest(p_groups, p_incarnations) as u (group_id, incarnation)
    where not exists (
        select from lakelog.sample_series s where s.group_id = u.group_id and s.incarnation = u.incarnation)
    order by 1, 2
    on conflict do nothing;
    select array_agg(s.series order by u.part) into v_series
    from unnest(p_groups, p_incarnations) with ordinality as u (group_id, incarnation, part)
    left join lakelog.sample_series s on s.group_id = u.group_id and s.incarnation = u.incarnation;
    insert into lakelog.sample_hour (series, minute, body)
    select u.series, p_minute / 60 * 60, u.body from unnest(v_series, p_bodies) as u (series, body)
    where u.series is not null on conflict do nothing;
    insert into lakelog.sample_ten_minutes (series, minute, body)
    select u.series, p_minute / 10 * 10, u.body from unnest(v_series, p_bodies) as u (series, body)
    where u.series is not null on conflict do nothing;
    insert into lakelog.sample_minute (series, minute, body)
    select u.series, p_minute, u.body from unnest(v_series, p_bodies) as u (series, body)
    where u.series is not null on conflict do nothing;
    get diagnostics v_written = row_count;
    return v_written;
end
$$;

CREATE FUNCTION lakelog.schedule(p_longest interval, s_pids bigint[], s_epochs integer[], s_marks bytea[], s_delays interval[], s_times timestamp with time zone[], s_memories interval[], s_expires bigint[], s_payloads bytea[]) RETURNS TABLE(part integer, status smallint, due_at timestamp with time zone, base_offset bigint)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
#variable_conflict use_column
declare
    v_now timestamptz := clock_timestamp();
    v_slots smallint[] := (select s.used from lakelog.period_slots() s);
    v_new integer[];
begin
    with inserted as (
        insert into lakelog.scheduled (pid, mark, due_at, scheduled_at, number, memory, expires_ms, payload)
        select g.pid, g.mark, coalesce(g.at, v_now + g.delay), v_now, g.part, g.memory, g.expires_ms, g.payload
        from unnest(s_pids, s_epochs, s_marks, s_delays, s_times, s_memories, s_expires, s_payloads) with ordinality
            as g (pid, epoch, mark, delay, at, memory, expires_ms, payload, part)
        cross join lateral (
            select x.state, x.epoch from lakelog.head x where x.pid = g.pid order by x.version desc limit 1
        ) h
        where h.state = 0 and g.epoch >= h.epoch
          and coalesce(g.at, v_now + g.delay) > v_now and coalesce(g.at, v_now + g.delay) <= v_now + p_longest
        order by g.pid, g.mark
        on conflict do nothing
        returning number
    )
    select coalesce(array_agg(i.number), '{}') into v_new from inserted i;
    -- Only now, because a delivery that the insert waited for has committed: a repeated call finds its message in the log.
    delete from lakelog.scheduled s using unnest(s_pids, s_marks) with ordinality as g (pid, mark, part)
    where s.pid = g.pid and s.mark = g.mark and g.part::integer = any (v_new) and exists (
        select from lakelog.key_append a
        where a.pid = g.pid and a.key_hash = g.mark and a.slot = any (v_slots) and a.expires_at > v_now
    );
    return query
    select g.part::integer,
           case
               when w.due_at is not null then case when g.part::integer = any (v_new) then 0 else 4 end
               when k.base_offset is not null then 5
               when h.state is null then 1
               when h.state <> 0 then 2
               when g.epoch < h.epoch then 3
               when coalesce(g.at, v_now + g.delay) > v_now then 7
               else 6
           end::smallint,
           -- The delay of a message that is in the log began at an unknown time.
           coalesce(w.due_at, case when k.base_offset is not null then least(g.at, v_now) end, g.at, v_now + g.delay),
           k.base_offset
    from unnest(s_pids, s_epochs, s_marks, s_delays, s_times) with ordinality as g (pid, epoch, mark, delay, at, part)
    left join lateral (
        select x.due_at from lakelog.scheduled x where x.pid = g.pid and x.mark = g.mark offset 0
    ) w on true
    left join lateral (
        select max(a.base_offset) as base_offset from lakelog.key_append a
        where a.pid = g.pid and a.key_hash = g.mark and a.slot = any (v_slots) and a.expires_at > v_now
    ) k on true
    left join lateral (
        select x.state, x.epoch from lakelog.head x where x.pid = g.pid order by x.version desc limit 1
    ) h on true
    order by 1;
end
$$;

CREATE FUNCTION lakelog.segments_load(p_name text, p_pids bigint[], p_firsts bigint[], p_fingerprints text[], s_pids bigint[], s_firsts bigint[], s_ends bigint[], s_paths text[], s_bytes bigint[], s_file_hashes text[], s_content_hashes text[], s_first_ats timestamp with time zone[], s_last_ats timestamp with time zone[], s_epochs integer[], s_groups text[]) RETURNS TABLE(part integer, status smallint, reason text, base bigint, stop bigint, print text)
    LANGUAGE plpgsql
    AS $$
declare
    v_load record;
    v_known record;
    v_head lakelog.head;
    v_new record;
    v_newest timestamptz;
    v_now timestamptz;
begin
    perform lakelog.lock_partitions(array(select distinct u from unnest(p_pids) as u order by u));
    for v_load in
        select * from unnest(p_pids, p_firsts, p_fingerprints) with ordinality as u (pid, first, fingerprint, number)
        order by u.pid
    loop
        part := v_load.number - 1;
        reason := null;
        select * into v_known from lakelog.loaded l where l.pid = v_load.pid and l.name = p_name;
        if v_known.pid is not null then
            status := 1;
            base := v_known.first_offset;
            stop := v_known.end_offset;
            print := v_known.fingerprint;
            return next;
            continue;
        end if;
        select * into v_head from lakelog.head h where h.pid = v_load.pid order by h.version desc limit 1;
        select count(*) as files, max(u."end") as "end", sum(u.bytes)::bigint as bytes, min(u.first_at) as first_at,
               max(u.last_at) as last_at, min(u.epoch) as epoch, max(u.epoch) as newest_epoch,
               array_agg(u.path) as paths
        into v_new
        from unnest(s_pids, s_ends, s_paths, s_bytes, s_first_ats, s_last_ats, s_epochs)
            as u (pid, "end", path, bytes, first_at, last_at, epoch)
        where u.pid = v_load.pid;
        v_now := greatest(v_head.appended_at, clock_timestamp());
        -- The time of the newest readable message. The head of an empty partition has the time when it was created.
        v_newest := case when v_head.log_start < v_head.next_offset then coalesce((
            select g.last_at from lakelog.segment g where g.pid = v_load.pid and g.end_offset = v_head.next_offset
        ), v_head.appended_at) end;
        reason := case
            when v_head.pid is null then 'missing'
            when v_head.state = 2 then 'deleted'
            when v_head.state = 1 then 'sealed'
            when v_new.files = 0 then null
            when v_new.epoch < v_head.epoch then 'epoch'
            when v_head.next_offset <> v_load.first then 'moved'
            when v_new.first_at < v_newest then 'earlier'
            when v_new.last_at > v_now then 'later'
            when exists (select from lakelog.segment g where g.path = any (v_new.paths)) then 'path'
        end;
        status := case when reason is null then 0 when reason = 'moved' then 2 else 3 end;
        base := v_head.next_offset;
        stop := coalesce(v_new."end", v_head.next_offset);
        print := v_load.fingerprint;
        if reason is null then
            insert into lakelog.loaded (pid, name, first_offset, end_offset, fingerprint)
            values (v_load.pid, p_name, base, stop, print);
        end if;
        if reason is null and v_new.files > 0 then
            insert into lakelog.segment (pid, first_offset, end_offset, path, bytes, file_hash, content_hash, first_at,
                                         last_at, epoch, bytes_end, groups, verified_at)
            select u.pid, u.first, u."end", u.path, u.bytes, u.file_hash, u.content_hash, u.first_at, u.last_at, u.epoch,
                   v_head.total_bytes + sum(u.bytes) over (order by u.first), u.groups::bigint[], clock_timestamp()
            from unnest(s_pids, s_firsts, s_ends, s_paths, s_bytes, s_file_hashes, s_content_hashes, s_first_ats, s_last_ats,
                        s_epochs, s_groups)
                as u (pid, first, "end", path, bytes, file_hash, content_hash, first_at, last_at, epoch, groups)
            where u.pid = v_load.pid;
            -- Roll 0: the next append begins a span, also in the active hot table. The span before it then ends, and no read
            -- of hot batches passes the segments.
            insert into lakelog.head (pid, version, next_offset, log_start, total_bytes, appended_at, roll, epoch, state)
            values (v_load.pid, v_head.version + 1, stop, v_head.log_start, v_head.total_bytes + v_new.bytes,
                    greatest(v_head.appended_at, v_new.last_at), 0, greatest(v_head.epoch, v_new.newest_epoch), v_head.state);
        end if;
        return next;
    end loop;
end
$$;

CREATE FUNCTION lakelog.segments_register(p_pids bigint[], p_firsts bigint[], p_ends bigint[], p_paths text[], p_bytes bigint[], p_file_hashes text[], p_content_hashes text[], p_first_ats timestamp with time zone[], p_last_ats timestamp with time zone[], p_epochs integer[], p_groups text[] DEFAULT NULL::text[]) RETURNS TABLE(part integer, status smallint, reason text)
    LANGUAGE plpgsql
    AS $$
declare
    v_new record;
    v_head record;
    v_over record;
    v_before bigint;
    v_batch record;
    v_reason text;
begin
    perform lakelog.lock_partitions(array(select distinct u from unnest(p_pids) as u order by u));
    for v_new in
        select * from unnest(p_pids, p_firsts, p_ends, p_paths, p_bytes, p_file_hashes, p_content_hashes, p_first_ats,
                             p_last_ats, p_epochs, p_groups)
            with ordinality as u (pid, first, "end", path, bytes, file_hash, content_hash, first_at, last_at, epoch,
                                  groups, number)
        order by u.pid, u.first, u.number
    loop
        part := v_new.number - 1;
        reason := null;
        select * into v_over from lakelog.segment s
        where s.pid = v_new.pid and s.end_offset > v_new.first order by s.end_offset limit 1;
        if v_over.path = v_new.path and v_over.first_offset = v_new.first and v_over.end_offset = v_new."end" then
            status := 1;
            return next;
            continue;
        end if;
        select * into v_head from lakelog.head h where h.pid = v_new.pid order by h.version desc limit 1;
        select s.end_offset into v_before from lakelog.segment s
        where s.pid = v_new.pid and s.end_offset <= v_new.first order by s.end_offset desc limit 1;
        select * into v_batch from lakelog.hot_batch_at(v_new.pid, v_new."end" - 1);
        v_reason := case
            when v_head.pid is null then 'missing'
            when v_head.state = 2 then 'deleted'
            when v_new."end" <= v_head.log_start then 'below'
            when v_new."end" > v_head.next_offset then 'beyond'
            when v_over.first_offset < v_new."end" then 'overlap'
            when v_new.first > v_head.log_start and v_before is distinct from v_new.first then 'gap'
            when v_batch.end_offset is distinct from v_new."end" then 'boundary'
            when v_batch.epoch <> v_new.epoch or v_batch.appended_at <> v_new.last_at then 'other'
            when exists (select from lakelog.segment s where s.path = v_new.path) then 'path'
        end;
        reason := v_reason;
        status := case when v_reason is null then 0 else 2 end;
        if v_reason is null then
            insert into lakelog.segment (pid, first_offset, end_offset, path, bytes, file_hash, content_hash, first_at,
                                         last_at, epoch, bytes_end, groups)
            values (v_new.pid, v_new.first, v_new."end", v_new.path, v_new.bytes, v_new.file_hash, v_new.content_hash,
                    v_new.first_at, v_new.last_at, v_new.epoch, v_batch.bytes_end, coalesce(v_new.groups, '{}')::bigint[]);
        end if;
        return next;
    end loop;
end
$$;

CREATE FUNCTION lakelog.segments_replace(p_pid bigint, p_old_firsts bigint[], p_old_ends bigint[], p_old_paths text[], p_old_content_hashes text[], p_firsts bigint[], p_ends bigint[], p_paths text[], p_bytes bigint[], p_file_hashes text[], p_content_hashes text[], p_first_ats timestamp with time zone[], p_last_ats timestamp with time zone[], p_epochs integer[], p_groups text[], OUT status smallint, OUT reason text) RETURNS record
    LANGUAGE plpgsql
    AS $$
declare
    v_head record;
    v_found integer;
    v_bytes_ends bigint[];
begin
    perform lakelog.lock_partitions(array[p_pid]);
    select count(*) into v_found
    from unnest(p_firsts, p_ends, p_paths) as n (first, "end", path)
    join lakelog.segment s on s.pid = p_pid and s.end_offset = n."end" and s.first_offset = n.first and s.path = n.path;
    if v_found = cardinality(p_paths) then
        status := 1;
        return;
    end if;
    select * into v_head from lakelog.head h where h.pid = p_pid order by h.version desc limit 1;
    select count(*) into v_found
    from unnest(p_old_firsts, p_old_ends, p_old_paths, p_old_content_hashes) as o (first, "end", path, content_hash)
    join lakelog.segment s on s.pid = p_pid and s.end_offset = o."end" and s.first_offset = o.first and s.path = o.path
        and s.content_hash = o.content_hash and s.verified_at is not null;
    reason := case
        when v_head.pid is null then 'missing'
        when v_head.state = 2 then 'deleted'
        when p_ends[cardinality(p_ends)] <= v_head.log_start then 'below'
        when v_found <> cardinality(p_old_paths) then 'replaced'
        when exists (select from lakelog.segment s where s.path = any (p_paths)) then 'path'
    end;
    if reason is not null then
        status := 2;
        return;
    end if;
    -- A file that ends within an old one counts the bytes of the whole old one, so that retention never removes too much.
    select array_agg(x.bytes_end order by n.number) into v_bytes_ends
    from unnest(p_ends) with ordinality as n ("end", number)
    cross join lateral (
        select s.bytes_end from lakelog.segment s
        where s.pid = p_pid and s.end_offset >= n."end" order by s.end_offset limit 1
    ) x;
    delete from lakelog.segment s where s.pid = p_pid and s.end_offset = any (p_old_ends);
    insert into lakelog.segment (pid, first_offset, end_offset, path, bytes, file_hash, content_hash, first_at, last_at,
                                 epoch, bytes_end, groups, verified_at)
    select p_pid, n.first, n."end", n.path, n.bytes, n.file_hash, n.content_hash, n.first_at, n.last_at, n.epoch,
           n.bytes_end, n.groups::bigint[], clock_timestamp()
    from unnest(p_firsts, p_ends, p_paths, p_bytes, p_file_hashes, p_content_hashes, p_first_ats, p_last_ats, p_epochs,
                v_bytes_ends, p_groups)
        as n (first, "end", path, bytes, file_hash, content_hash, first_at, last_at, epoch, bytes_end, groups);
    status := 0;
end
$$;

CREATE FUNCTION lakelog.segments_trim() RETURNS bigint
    LANGUAGE plpgsql
    AS $$
declare
    v_trimmed bigint;
begin
    with doomed as (
        delete from lakelog.segment old
        using (
            select p.pid, h.log_start from lakelog.partition p
            cross join lateral (select x.log_start from lakelog.head x where x.pid = p.pid order by x.version desc limit 1) h
        ) newest
        where old.pid = newest.pid and old.end_offset <= newest.log_start
        returning 1
    )
    select count(*) into v_trimmed from doomed;
    return v_trimmed;
end
$$;

CREATE FUNCTION lakelog.segments_trim_some(p_after bigint, p_partitions integer, OUT next_after bigint, OUT trimmed bigint) RETURNS record
    LANGUAGE plpgsql
    AS $$
begin
    next_after := lakelog.partitions_walk(p_after, p_partitions);
    delete from lakelog.segment old
    using (
        select p.pid, h.log_start from lakelog.partition p
        cross join lateral (select x.log_start from lakelog.head x where x.pid = p.pid order by x.version desc limit 1) h
        where p.pid > p_after and (next_after is null or p.pid <= next_after)
    ) newest
    where old.pid = newest.pid and old.end_offset <= newest.log_start;
    get diagnostics trimmed = row_count;
end
$$;

CREATE FUNCTION lakelog.span_keep(p_roll integer, p_pid bigint, p_first bigint, p_target integer, p_grace interval, p_bytes bigint) RETURNS bigint
    LANGUAGE plpgsql
    AS $_$
declare
    v_low bigint;
    v_high bigint;
    v_end bigint;
    v_bytes bigint;
begin
    perform pg_advisory_xact_lock(lakelog.lock_key(p_pid));
    select w.low, w.high into v_low, v_high from lakelog.span_survivors(p_pid, p_first, p_grace) w;
    execute format(
        'with found as ('
        'select b.*, sum(octet_length(b.payload)) over (order by b.end_offset) as bytes from ('
        'select * from lakelog.%1$I where pid = $1 and end_offset > $2 and end_offset <= $3 order by end_offset limit 1000) b'
        '), chosen as (select * from found where bytes - octet_length(payload) < $4), copied as ('
        'insert into lakelog.%2$I (pid, end_offset, count, bytes_end, appended_at, epoch, format, payload) '
        'select pid, end_offset, count, bytes_end, appended_at, epoch, format, payload from chosen c '
        'where not exists (select from lakelog.segment g where g.pid = $1 and g.end_offset >= c.end_offset '
        'and g.first_offset <= c.end_offset - c.count and g.verified_at <= clock_timestamp() - $5)) '
        'select max(end_offset), coalesce(max(bytes), 0) from chosen', 'hot_' || p_roll, 'hot_' || p_target
    ) into v_end, v_bytes using p_pid, v_low, v_high, p_bytes, p_grace;
    if v_end is not null then
        update lakelog.span set roll = p_target where pid = p_pid and first_offset = p_first;
        if v_end < v_high then
            insert into lakelog.span (pid, first_offset, roll) values (p_pid, v_end, p_roll);
        end if;
    end if;
    return v_bytes;
end
$_$;

CREATE FUNCTION lakelog.span_survivors(p_pid bigint, p_first bigint, p_grace interval) RETURNS TABLE(low bigint, high bigint)
    LANGUAGE sql STABLE
    AS $$
    select w.low, w.high
    from (select * from lakelog.head x where x.pid = p_pid order by x.version desc limit 1) h
    cross join lateral (
        select greatest(h.log_start, p_first) as low, least(h.next_offset, (
            select n.first_offset from lakelog.span n
            where n.pid = p_pid and n.first_offset > p_first order by n.first_offset limit 1)) as high
    ) w
    where w.low < w.high and w.high - w.low > (
        select coalesce(sum(least(g.end_offset, w.high) - greatest(g.first_offset, w.low)), 0)
        from lakelog.segment g
        where g.pid = p_pid and g.end_offset > w.low and g.first_offset < w.high
          and g.verified_at <= clock_timestamp() - p_grace)
$$;

CREATE FUNCTION lakelog.staged_discard(p_pid bigint, p_write text, p_bytes bigint) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
declare
    v_slots bigint[];
    v_roll integer;
begin
    select array_agg(d.slot) into v_slots from (
        select s.slot, sum(s.bytes) over (order by s.attempt, s.number) - s.bytes as before
        from lakelog.staged s where s.pid = p_pid and s.write_id = p_write
    ) d where d.before < p_bytes;
    if v_slots is null then
        return 0;
    end if;
    for v_roll in
        select distinct s.roll from lakelog.staged s
        where s.pid = p_pid and s.write_id = p_write and s.slot = any (v_slots)
    loop
        execute format('delete from lakelog.%I h using unnest($1) as u (slot) where h.pid = -u.slot', 'hot_' || v_roll)
        using v_slots;
    end loop;
    delete from lakelog.staged s where s.pid = p_pid and s.write_id = p_write and s.slot = any (v_slots);
    return cardinality(v_slots);
end
$_$;

CREATE FUNCTION lakelog.tierable(p_pids bigint[], p_segment_bytes bigint, p_min_bytes bigint, p_min_age interval, p_limit integer) RETURNS TABLE(pid bigint, first_offset bigint, end_offset bigint, bytes bigint)
    LANGUAGE plpgsql STABLE
    AS $$
declare
    v_head record;
    v_batch record;
    v_end record;
    v_limit bigint;
    v_day_end bigint;
    v_midnight timestamptz;
    v_low bigint;
    v_high bigint;
    v_start bigint;
begin
    for v_head in
        select h.* from unnest(p_pids) as a (pid)
        cross join lateral (select * from lakelog.head x where x.pid = a.pid order by x.version desc limit 1) h
        where h.state <> 2 order by h.pid
    loop
        pid := v_head.pid;
        v_start := lakelog.tiered_end(pid, v_head.log_start);
        for v_number in 1 .. p_limit loop
            exit when v_start >= v_head.next_offset;
            select * into strict v_batch from lakelog.hot_batch_at(pid, v_start);
            first_offset := greatest(v_batch.end_offset - v_batch.count, v_head.log_start);
            -- A gap where a damaged segment was is filled exactly up to the next segment.
            select least(min(s.first_offset), v_head.next_offset) into v_limit from lakelog.segment s
            where s.pid = v_head.pid and s.end_offset > v_start;
            v_limit := coalesce(v_limit, v_head.next_offset);
            select * into strict v_end from lakelog.hot_batch_at(pid, v_limit - 1);
            v_day_end := v_limit;
            v_midnight := date_trunc('day', v_batch.appended_at, 'UTC') + interval '24 hours';
            if v_end.appended_at >= v_midnight then
                v_day_end := least(v_limit, lakelog.offset_search(pid, v_midnight, null));
                select * into strict v_end from lakelog.hot_batch_at(pid, v_day_end - 1);
            end if;
            if v_end.bytes_end - v_batch.bytes_start < p_segment_bytes then
                exit when v_day_end = v_head.next_offset and v_end.bytes_end - v_batch.bytes_start < p_min_bytes
                    and v_batch.appended_at > clock_timestamp() - p_min_age;
            else
                v_low := v_start;
                v_high := v_end.end_offset - v_end.count;
                while v_low < v_high loop
                    select * into strict v_end from lakelog.hot_batch_at(pid, (v_low + v_high) / 2);
                    if v_end.bytes_end - v_batch.bytes_start >= p_segment_bytes then
                        v_high := v_end.end_offset - v_end.count;
                    else
                        v_low := v_end.end_offset;
                    end if;
                end loop;
                select * into strict v_end from lakelog.hot_batch_at(pid, v_low);
            end if;
            end_offset := v_end.end_offset;
            bytes := v_end.bytes_end - v_batch.bytes_start;
            return next;
            v_start := end_offset;
            exit when v_limit < v_head.next_offset and v_start >= v_limit;
        end loop;
    end loop;
end
$$;

CREATE FUNCTION lakelog.tiered_end(p_pid bigint, p_log_start bigint) RETURNS bigint
    LANGUAGE sql STABLE
    AS $$
    select coalesce(case when min(first_offset) <= p_log_start then min(end_offset) filter (where is_last) end, p_log_start)
    from (
        select first_offset, end_offset,
               lead(first_offset) over (order by end_offset) is distinct from end_offset as is_last
        from lakelog.segment where pid = p_pid and end_offset > p_log_start
    ) s
$$;

CREATE FUNCTION lakelog.timeline_begin() RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
    v_timeline integer := lakelog.timeline_now();
begin
    if exists (select from lakelog.timeline t where t.timeline >= v_timeline) then
        return;
    end if;
    -- A new primary may have no standby yet. If this is lost in another failover, so is everything after it.
    perform set_config('synchronous_commit', 'local', true);
    perform pg_advisory_xact_lock(lakelog.lock_key(-5));
    -- A separate statement: another session may have recorded it while this one waited.
    if exists (select from lakelog.timeline t where t.timeline >= v_timeline) then
        return;
    end if;
    insert into lakelog.timeline (timeline) values (v_timeline);
    insert into lakelog.timeline_end (pid, timeline, next_offset)
    select p.pid, v_timeline, h.next_offset from lakelog.partition p
    cross join lateral (select x.next_offset from lakelog.head x where x.pid = p.pid order by x.version desc limit 1) h;
end
$$;

CREATE FUNCTION lakelog.timeline_now() RETURNS integer
    LANGUAGE sql
    RETURN ((('x'::text || "left"(pg_walfile_name(pg_current_wal_lsn()), 8)))::bit(32))::integer;

CREATE FUNCTION lakelog.topic_version_raise() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
    new.version := old.version + 1;
    return new;
end
$$;

CREATE FUNCTION lakelog.unslotted_check() RETURNS boolean
    LANGUAGE plpgsql
    AS $$
begin
    delete from lakelog.unslotted where migrated_at < clock_timestamp() - interval '1 hour'
        and not exists (select from lakelog.keyed_append) and not exists (select from lakelog.reservation)
        and not exists (select from lakelog.producer_batch);
    return exists (select from lakelog.unslotted);
end
$$;

CREATE TABLE lakelog.audit (
    number bigint NOT NULL,
    environment_id bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    operation text NOT NULL,
    summary text NOT NULL,
    outcome text NOT NULL,
    actor_kind text NOT NULL,
    actor text NOT NULL,
    actor_name text NOT NULL,
    address text NOT NULL,
    request_id text NOT NULL,
    objects jsonb NOT NULL,
    given jsonb NOT NULL,
    before jsonb,
    after jsonb
);

ALTER TABLE lakelog.audit ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME lakelog.audit_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE lakelog.backup_mark (
    name text NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    until timestamp with time zone NOT NULL
);

CREATE TABLE lakelog.cell (
    cell smallint NOT NULL,
    name text NOT NULL
);

ALTER TABLE lakelog.cell ALTER COLUMN cell ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME lakelog.cell_cell_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE lakelog.closed_partition (
    pid bigint NOT NULL,
    closed_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

CREATE TABLE lakelog.closed_topic (
    incarnation bigint NOT NULL
);

CREATE TABLE lakelog.consumer_group (
    group_id bigint NOT NULL,
    environment_id bigint NOT NULL,
    name text NOT NULL,
    kind text NOT NULL,
    settings jsonb NOT NULL,
    version bigint DEFAULT 1 NOT NULL,
    cell smallint NOT NULL,
    paused text[] DEFAULT '{}'::text[] NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    deleted_at timestamp with time zone,
    closed_at timestamp with time zone
);

ALTER TABLE lakelog.consumer_group ALTER COLUMN group_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME lakelog.consumer_group_group_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE lakelog.dead_letter (
    group_id bigint NOT NULL,
    pid bigint NOT NULL,
    message_offset bigint NOT NULL,
    epoch integer NOT NULL,
    state smallint DEFAULT 0 NOT NULL,
    at timestamp with time zone NOT NULL,
    deliveries integer NOT NULL,
    failures integer NOT NULL,
    reason text NOT NULL,
    owner text NOT NULL,
    payload bytea,
    redriven_to bigint,
    traceback text,
    fingerprint bigint
);
ALTER TABLE ONLY lakelog.dead_letter ALTER COLUMN payload SET STORAGE EXTERNAL;

CREATE TABLE lakelog.decision (
    incarnation bigint NOT NULL,
    write_id text NOT NULL,
    writer text NOT NULL,
    number bigint NOT NULL,
    attempts text[] NOT NULL,
    attempts_hash bytea NOT NULL,
    count bigint NOT NULL,
    decided_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    finished_at timestamp with time zone
);

CREATE TABLE lakelog.environment (
    environment_id bigint NOT NULL,
    project text NOT NULL,
    name text NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

ALTER TABLE lakelog.environment ALTER COLUMN environment_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME lakelog.environment_environment_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE lakelog.group_topic (
    group_id bigint NOT NULL,
    incarnation bigint NOT NULL,
    starts bigint[] NOT NULL,
    epoch integer DEFAULT 0 NOT NULL,
    targets bigint[] DEFAULT '{}'::bigint[] NOT NULL,
    timelines integer[] DEFAULT '{}'::integer[] NOT NULL
);

CREATE TABLE lakelog.heartbeat (
    group_id bigint NOT NULL,
    member_id text NOT NULL,
    seen_at timestamp with time zone NOT NULL
)
WITH (fillfactor='30', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000');

CREATE TABLE lakelog.hot_1 (
    pid bigint NOT NULL,
    end_offset bigint NOT NULL,
    count integer NOT NULL,
    bytes_end bigint NOT NULL,
    appended_at timestamp with time zone NOT NULL,
    epoch integer NOT NULL,
    format smallint DEFAULT 1 NOT NULL,
    payload bytea NOT NULL
)
WITH (autovacuum_enabled=off, toast.autovacuum_enabled=off);
ALTER TABLE ONLY lakelog.hot_1 ALTER COLUMN payload SET STORAGE EXTERNAL;

CREATE TABLE lakelog.iceberg_file (
    path text NOT NULL,
    incarnation bigint NOT NULL,
    added bigint NOT NULL,
    removed bigint,
    kind text DEFAULT 'messages'::text NOT NULL
);

CREATE TABLE lakelog.iceberg_table (
    incarnation bigint NOT NULL,
    version bigint NOT NULL,
    metadata text NOT NULL,
    committed_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    kind text DEFAULT 'messages'::text NOT NULL
);

CREATE TABLE lakelog.incident (
    at_ms bigint NOT NULL,
    group_id bigint NOT NULL,
    pid bigint NOT NULL,
    message_offset bigint NOT NULL,
    epoch integer NOT NULL,
    kind smallint NOT NULL,
    deliveries integer NOT NULL,
    failures integer NOT NULL,
    owner text NOT NULL,
    leased_ms bigint NOT NULL,
    due_ms bigint,
    fingerprint bigint NOT NULL,
    left_out integer NOT NULL,
    reason text NOT NULL,
    traceback text
)
PARTITION BY RANGE (at_ms);

CREATE TABLE lakelog.installation (
    only_row boolean DEFAULT true NOT NULL,
    installation_id uuid DEFAULT gen_random_uuid() NOT NULL,
    cell smallint DEFAULT 0 NOT NULL,
    feature_level integer DEFAULT 1 NOT NULL,
    CONSTRAINT installation_only_row_check CHECK (only_row)
);

CREATE TABLE lakelog.key_append (
    slot smallint NOT NULL,
    pid bigint NOT NULL,
    key_hash bytea NOT NULL,
    base_offset bigint NOT NULL,
    expires_at timestamp with time zone NOT NULL
)
PARTITION BY LIST (slot);
ALTER TABLE ONLY lakelog.key_append ALTER COLUMN key_hash SET STORAGE PLAIN;

CREATE TABLE lakelog.key_append_0 (
    slot smallint NOT NULL,
    pid bigint NOT NULL,
    key_hash bytea NOT NULL,
    base_offset bigint NOT NULL,
    expires_at timestamp with time zone NOT NULL
)
WITH (autovacuum_vacuum_insert_threshold='-1');
ALTER TABLE ONLY lakelog.key_append_0 ALTER COLUMN key_hash SET STORAGE PLAIN;

CREATE TABLE lakelog.key_append_1 (
    slot smallint NOT NULL,
    pid bigint NOT NULL,
    key_hash bytea NOT NULL,
    base_offset bigint NOT NULL,
    expires_at timestamp with time zone NOT NULL
)
WITH (autovacuum_vacuum_insert_threshold='-1');
ALTER TABLE ONLY lakelog.key_append_1 ALTER COLUMN key_hash SET STORAGE PLAIN;

CREATE TABLE lakelog.key_append_2 (
    slot smallint NOT NULL,
    pid bigint NOT NULL,
    key_hash bytea NOT NULL,
    base_offset bigint NOT NULL,
    expires_at timestamp with time zone NOT NULL
)
WITH (autovacuum_vacuum_insert_threshold='-1');
ALTER TABLE ONLY lakelog.key_append_2 ALTER COLUMN key_hash SET STORAGE PLAIN;

CREATE TABLE lakelog.key_append_3 (
    slot smallint NOT NULL,
    pid bigint NOT NULL,
    key_hash bytea NOT NULL,
    base_offset bigint NOT NULL,
    expires_at timestamp with time zone NOT NULL
)
WITH (autovacuum_vacuum_insert_threshold='-1');
ALTER TABLE ONLY lakelog.key_append_3 ALTER COLUMN key_hash SET STORAGE PLAIN;

CREATE TABLE lakelog.key_append_4 (
    slot smallint NOT NULL,
    pid bigint NOT NULL,
    key_hash bytea NOT NULL,
    base_offset bigint NOT NULL,
    expires_at timestamp with time zone NOT NULL
)
WITH (autovacuum_vacuum_insert_threshold='-1');
ALTER TABLE ONLY lakelog.key_append_4 ALTER COLUMN key_hash SET STORAGE PLAIN;

CREATE TABLE lakelog.key_append_5 (
    slot smallint NOT NULL,
    pid bigint NOT NULL,
    key_hash bytea NOT NULL,
    base_offset bigint NOT NULL,
    expires_at timestamp with time zone NOT NULL
)
WITH (autovacuum_vacuum_insert_threshold='-1');
ALTER TABLE ONLY lakelog.key_append_5 ALTER COLUMN key_hash SET STORAGE PLAIN;

CREATE TABLE lakelog.key_reservation (
    slot smallint NOT NULL,
    incarnation bigint NOT NULL,
    key_hash bytea NOT NULL,
    body_hash bytea NOT NULL,
    partition integer NOT NULL,
    expires_at timestamp with time zone NOT NULL
)
PARTITION BY LIST (slot);
ALTER TABLE ONLY lakelog.key_reservation ALTER COLUMN key_hash SET STORAGE PLAIN;
ALTER TABLE ONLY lakelog.key_reservation ALTER COLUMN body_hash SET STORAGE PLAIN;

CREATE TABLE lakelog.key_reservation_0 (
    slot smallint NOT NULL,
    incarnation bigint NOT NULL,
    key_hash bytea NOT NULL,
    body_hash bytea NOT NULL,
    partition integer NOT NULL,
    expires_at timestamp with time zone NOT NULL
)
WITH (autovacuum_vacuum_insert_threshold='-1');
ALTER TABLE ONLY lakelog.key_reservation_0 ALTER COLUMN key_hash SET STORAGE PLAIN;
ALTER TABLE ONLY lakelog.key_reservation_0 ALTER COLUMN body_hash SET STORAGE PLAIN;

CREATE TABLE lakelog.key_reservation_1 (
    slot smallint NOT NULL,
    incarnation bigint NOT NULL,
    key_hash bytea NOT NULL,
    body_hash bytea NOT NULL,
    partition integer NOT NULL,
    expires_at timestamp with time zone NOT NULL
)
WITH (autovacuum_vacuum_insert_threshold='-1');
ALTER TABLE ONLY lakelog.key_reservation_1 ALTER COLUMN key_hash SET STORAGE PLAIN;
ALTER TABLE ONLY lakelog.key_reservation_1 ALTER COLUMN body_hash SET STORAGE PLAIN;

CREATE TABLE lakelog.key_reservation_2 (
    slot smallint NOT NULL,
    incarnation bigint NOT NULL,
    key_hash bytea NOT NULL,
    body_hash bytea NOT NULL,
    partition integer NOT NULL,
    expires_at timestamp with time zone NOT NULL
)
WITH (autovacuum_vacuum_insert_threshold='-1');
ALTER TABLE ONLY lakelog.key_reservation_2 ALTER COLUMN key_hash SET STORAGE PLAIN;
ALTER TABLE ONLY lakelog.key_reservation_2 ALTER COLUMN body_hash SET STORAGE PLAIN;

CREATE TABLE lakelog.key_reservation_3 (
    slot smallint NOT NULL,
    incarnation bigint NOT NULL,
    key_hash bytea NOT NULL,
    body_hash bytea NOT NULL,
    partition integer NOT NULL,
    expires_at timestamp with time zone NOT NULL
)
WITH (autovacuum_vacuum_insert_threshold='-1');
ALTER TABLE ONLY lakelog.key_reservation_3 ALTER COLUMN key_hash SET STORAGE PLAIN;
ALTER TABLE ONLY lakelog.key_reservation_3 ALTER COLUMN body_hash SET STORAGE PLAIN;

CREATE TABLE lakelog.key_reservation_4 (
    slot smallint NOT NULL,
    incarnation bigint NOT NULL,
    key_hash bytea NOT NULL,
    body_hash bytea NOT NULL,
    partition integer NOT NULL,
    expires_at timestamp with time zone NOT NULL
)
WITH (autovacuum_vacuum_insert_threshold='-1');
ALTER TABLE ONLY lakelog.key_reservation_4 ALTER COLUMN key_hash SET STORAGE PLAIN;
ALTER TABLE ONLY lakelog.key_reservation_4 ALTER COLUMN body_hash SET STORAGE PLAIN;

CREATE TABLE lakelog.key_reservation_5 (
    slot smallint NOT NULL,
    incarnation bigint NOT NULL,
    key_hash bytea NOT NULL,
    body_hash bytea NOT NULL,
    partition integer NOT NULL,
    expires_at timestamp with time zone NOT NULL
)
WITH (autovacuum_vacuum_insert_threshold='-1');
ALTER TABLE ONLY lakelog.key_reservation_5 ALTER COLUMN key_hash SET STORAGE PLAIN;
ALTER TABLE ONLY lakelog.key_reservation_5 ALTER COLUMN body_hash SET STORAGE PLAIN;

CREATE TABLE lakelog.keyed_append (
    pid bigint NOT NULL,
    key_hash bytea NOT NULL,
    base_offset bigint NOT NULL,
    at timestamp with time zone NOT NULL
);

CREATE TABLE lakelog.loaded (
    pid bigint NOT NULL,
    name text NOT NULL,
    first_offset bigint NOT NULL,
    end_offset bigint NOT NULL,
    fingerprint text NOT NULL,
    loaded_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT loaded_check CHECK ((first_offset <= end_offset))
);

CREATE TABLE lakelog.members (
    group_id bigint NOT NULL,
    version bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    format smallint DEFAULT 1 NOT NULL,
    body bytea NOT NULL
);

CREATE TABLE lakelog.migration (
    version integer NOT NULL,
    name text NOT NULL,
    applied_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

CREATE TABLE lakelog.once_value (
    slot smallint NOT NULL,
    group_id bigint NOT NULL,
    incarnation bigint NOT NULL,
    value_hash bytea NOT NULL,
    accepted_at timestamp with time zone NOT NULL
)
PARTITION BY LIST (slot);
ALTER TABLE ONLY lakelog.once_value ALTER COLUMN value_hash SET STORAGE PLAIN;

CREATE TABLE lakelog.once_value_0 (
    slot smallint NOT NULL,
    group_id bigint NOT NULL,
    incarnation bigint NOT NULL,
    value_hash bytea NOT NULL,
    accepted_at timestamp with time zone NOT NULL
)
WITH (autovacuum_vacuum_insert_threshold='-1');
ALTER TABLE ONLY lakelog.once_value_0 ALTER COLUMN value_hash SET STORAGE PLAIN;

CREATE TABLE lakelog.once_value_1 (
    slot smallint NOT NULL,
    group_id bigint NOT NULL,
    incarnation bigint NOT NULL,
    value_hash bytea NOT NULL,
    accepted_at timestamp with time zone NOT NULL
)
WITH (autovacuum_vacuum_insert_threshold='-1');
ALTER TABLE ONLY lakelog.once_value_1 ALTER COLUMN value_hash SET STORAGE PLAIN;

CREATE TABLE lakelog.once_value_2 (
    slot smallint NOT NULL,
    group_id bigint NOT NULL,
    incarnation bigint NOT NULL,
    value_hash bytea NOT NULL,
    accepted_at timestamp with time zone NOT NULL
)
WITH (autovacuum_vacuum_insert_threshold='-1');
ALTER TABLE ONLY lakelog.once_value_2 ALTER COLUMN value_hash SET STORAGE PLAIN;

CREATE TABLE lakelog.once_value_3 (
    slot smallint NOT NULL,
    group_id bigint NOT NULL,
    incarnation bigint NOT NULL,
    value_hash bytea NOT NULL,
    accepted_at timestamp with time zone NOT NULL
)
WITH (autovacuum_vacuum_insert_threshold='-1');
ALTER TABLE ONLY lakelog.once_value_3 ALTER COLUMN value_hash SET STORAGE PLAIN;

CREATE TABLE lakelog.once_value_4 (
    slot smallint NOT NULL,
    group_id bigint NOT NULL,
    incarnation bigint NOT NULL,
    value_hash bytea NOT NULL,
    accepted_at timestamp with time zone NOT NULL
)
WITH (autovacuum_vacuum_insert_threshold='-1');
ALTER TABLE ONLY lakelog.once_value_4 ALTER COLUMN value_hash SET STORAGE PLAIN;

CREATE TABLE lakelog.orphan (
    path text NOT NULL,
    first_seen_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

CREATE TABLE lakelog.outbox_relay (
    outbox_id bigint NOT NULL,
    environment_id bigint NOT NULL,
    epoch bigint NOT NULL
);

CREATE TABLE lakelog.period (
    slot smallint NOT NULL,
    began_at timestamp with time zone,
    ended_at timestamp with time zone,
    CONSTRAINT period_check CHECK (((ended_at IS NULL) OR (began_at IS NOT NULL)))
)
WITH (fillfactor='50');

CREATE TABLE lakelog.producer (
    slot smallint NOT NULL,
    pid bigint NOT NULL,
    producer bytea NOT NULL,
    last bigint NOT NULL,
    offsets bigint[] NOT NULL,
    at timestamp with time zone NOT NULL
)
PARTITION BY LIST (slot);
ALTER TABLE ONLY lakelog.producer ALTER COLUMN producer SET STORAGE PLAIN;
ALTER TABLE ONLY lakelog.producer ALTER COLUMN offsets SET STORAGE PLAIN;

CREATE TABLE lakelog.producer_0 (
    slot smallint NOT NULL,
    pid bigint NOT NULL,
    producer bytea NOT NULL,
    last bigint NOT NULL,
    offsets bigint[] NOT NULL,
    at timestamp with time zone NOT NULL
)
WITH (autovacuum_vacuum_insert_threshold='-1');
ALTER TABLE ONLY lakelog.producer_0 ALTER COLUMN producer SET STORAGE PLAIN;
ALTER TABLE ONLY lakelog.producer_0 ALTER COLUMN offsets SET STORAGE PLAIN;

CREATE TABLE lakelog.producer_1 (
    slot smallint NOT NULL,
    pid bigint NOT NULL,
    producer bytea NOT NULL,
    last bigint NOT NULL,
    offsets bigint[] NOT NULL,
    at timestamp with time zone NOT NULL
)
WITH (autovacuum_vacuum_insert_threshold='-1');
ALTER TABLE ONLY lakelog.producer_1 ALTER COLUMN producer SET STORAGE PLAIN;
ALTER TABLE ONLY lakelog.producer_1 ALTER COLUMN offsets SET STORAGE PLAIN;

CREATE TABLE lakelog.producer_2 (
    slot smallint NOT NULL,
    pid bigint NOT NULL,
    producer bytea NOT NULL,
    last bigint NOT NULL,
    offsets bigint[] NOT NULL,
    at timestamp with time zone NOT NULL
)
WITH (autovacuum_vacuum_insert_threshold='-1');
ALTER TABLE ONLY lakelog.producer_2 ALTER COLUMN producer SET STORAGE PLAIN;
ALTER TABLE ONLY lakelog.producer_2 ALTER COLUMN offsets SET STORAGE PLAIN;

CREATE TABLE lakelog.producer_3 (
    slot smallint NOT NULL,
    pid bigint NOT NULL,
    producer bytea NOT NULL,
    last bigint NOT NULL,
    offsets bigint[] NOT NULL,
    at timestamp with time zone NOT NULL
)
WITH (autovacuum_vacuum_insert_threshold='-1');
ALTER TABLE ONLY lakelog.producer_3 ALTER COLUMN producer SET STORAGE PLAIN;
ALTER TABLE ONLY lakelog.producer_3 ALTER COLUMN offsets SET STORAGE PLAIN;

CREATE TABLE lakelog.producer_4 (
    slot smallint NOT NULL,
    pid bigint NOT NULL,
    producer bytea NOT NULL,
    last bigint NOT NULL,
    offsets bigint[] NOT NULL,
    at timestamp with time zone NOT NULL
)
WITH (autovacuum_vacuum_insert_threshold='-1');
ALTER TABLE ONLY lakelog.producer_4 ALTER COLUMN producer SET STORAGE PLAIN;
ALTER TABLE ONLY lakelog.producer_4 ALTER COLUMN offsets SET STORAGE PLAIN;

CREATE TABLE lakelog.producer_batch (
    pid bigint NOT NULL,
    producer bytea NOT NULL,
    sequence bigint NOT NULL,
    count integer NOT NULL,
    base_offset bigint NOT NULL,
    at timestamp with time zone NOT NULL
);

CREATE TABLE lakelog.promoted (
    pid bigint NOT NULL,
    write_id text NOT NULL,
    base_offset bigint NOT NULL,
    count bigint NOT NULL,
    at timestamp with time zone NOT NULL
);

CREATE TABLE lakelog.rejected_message (
    number bigint NOT NULL,
    environment_id bigint NOT NULL,
    message_id text NOT NULL,
    source text NOT NULL,
    topic text NOT NULL,
    code text NOT NULL,
    reason text NOT NULL,
    partition integer,
    payload bytea NOT NULL,
    rejected_at timestamp with time zone NOT NULL
);

ALTER TABLE lakelog.rejected_message ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME lakelog.rejected_message_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE lakelog.relayed (
    outbox_id bigint NOT NULL,
    pid bigint NOT NULL,
    base_offset bigint NOT NULL,
    numbers bigint[] NOT NULL,
    salts integer[] NOT NULL,
    relayed_at timestamp with time zone NOT NULL,
    span int8range NOT NULL
);

CREATE TABLE lakelog.reservation (
    incarnation bigint NOT NULL,
    key_hash bytea NOT NULL,
    body_hash bytea NOT NULL,
    partition integer NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

CREATE TABLE lakelog.roll (
    roll integer NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    kept boolean DEFAULT false NOT NULL
);

CREATE TABLE lakelog.runner (
    task text NOT NULL,
    runner text NOT NULL,
    until timestamp with time zone NOT NULL
)
WITH (fillfactor='50');

CREATE TABLE lakelog.sample_hour (
    series integer NOT NULL,
    minute integer NOT NULL,
    body bytea NOT NULL
)
PARTITION BY RANGE (minute);

CREATE TABLE lakelog.sample_minute (
    series integer NOT NULL,
    minute integer NOT NULL,
    body bytea NOT NULL
)
PARTITION BY RANGE (minute);

CREATE TABLE lakelog.sample_series (
    series integer NOT NULL,
    group_id bigint NOT NULL,
    incarnation bigint NOT NULL
);

ALTER TABLE lakelog.sample_series ALTER COLUMN series ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME lakelog.sample_series_series_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE lakelog.sample_ten_minutes (
    series integer NOT NULL,
    minute integer NOT NULL,
    body bytea NOT NULL
)
PARTITION BY RANGE (minute);

CREATE TABLE lakelog.scheduled (
    pid bigint NOT NULL,
    mark bytea NOT NULL,
    state smallint DEFAULT 0 NOT NULL,
    due_at timestamp with time zone NOT NULL,
    scheduled_at timestamp with time zone NOT NULL,
    number integer NOT NULL,
    ended_at timestamp with time zone,
    memory interval NOT NULL,
    expires_ms bigint,
    payload bytea NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_threshold='1000');
ALTER TABLE ONLY lakelog.scheduled ALTER COLUMN mark SET STORAGE PLAIN;

CREATE TABLE lakelog.segment (
    pid bigint NOT NULL,
    end_offset bigint NOT NULL,
    first_offset bigint NOT NULL,
    path text NOT NULL,
    bytes bigint NOT NULL,
    file_hash text NOT NULL,
    content_hash text NOT NULL,
    first_at timestamp with time zone NOT NULL,
    last_at timestamp with time zone NOT NULL,
    epoch integer NOT NULL,
    bytes_end bigint NOT NULL,
    registered_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    verified_at timestamp with time zone,
    groups bigint[] DEFAULT '{}'::bigint[] NOT NULL,
    CONSTRAINT segment_check CHECK ((first_offset < end_offset))
);

CREATE TABLE lakelog.server (
    server_id text NOT NULL,
    address text NOT NULL,
    seen_at timestamp with time zone NOT NULL,
    level integer DEFAULT 1 NOT NULL
)
WITH (fillfactor='50');

CREATE TABLE lakelog.server_key (
    secret bytea NOT NULL,
    created_at timestamp with time zone NOT NULL
);

CREATE TABLE lakelog.span (
    pid bigint NOT NULL,
    first_offset bigint NOT NULL,
    roll integer NOT NULL
);

CREATE TABLE lakelog.staged (
    pid bigint NOT NULL,
    write_id text NOT NULL,
    attempt text NOT NULL,
    number integer NOT NULL,
    count integer NOT NULL,
    bytes bigint NOT NULL,
    epoch integer NOT NULL,
    roll integer NOT NULL,
    slot bigint NOT NULL,
    staged_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

CREATE SEQUENCE lakelog.staged_slot
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

CREATE TABLE lakelog.timeline (
    timeline integer NOT NULL,
    began_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

CREATE TABLE lakelog.timeline_end (
    pid bigint NOT NULL,
    timeline integer NOT NULL,
    next_offset bigint NOT NULL
);

CREATE TABLE lakelog.token (
    token_id text NOT NULL,
    environment_id bigint NOT NULL,
    name text NOT NULL,
    hash bytea NOT NULL,
    rights text[] NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    expires_at timestamp with time zone,
    revoked_at timestamp with time zone,
    parent_id text
);

CREATE TABLE lakelog.topic (
    incarnation bigint NOT NULL,
    environment_id bigint NOT NULL,
    name text NOT NULL,
    epoch integer DEFAULT 0 NOT NULL,
    cells smallint[] NOT NULL,
    slot_cells smallint[] NOT NULL,
    settings jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    deleted_at timestamp with time zone,
    closed_at timestamp with time zone,
    version integer DEFAULT 0 NOT NULL
);

ALTER TABLE lakelog.topic ALTER COLUMN incarnation ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME lakelog.topic_incarnation_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE lakelog.topic_schema (
    incarnation bigint NOT NULL,
    version integer NOT NULL,
    schema text NOT NULL,
    created_at timestamp with time zone NOT NULL
);

CREATE TABLE lakelog.unslotted (
    only_row boolean DEFAULT true NOT NULL,
    migrated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT unslotted_only_row_check CHECK (only_row)
);

ALTER TABLE ONLY lakelog.key_append ATTACH PARTITION lakelog.key_append_0 FOR VALUES IN ('0');

ALTER TABLE ONLY lakelog.key_append ATTACH PARTITION lakelog.key_append_1 FOR VALUES IN ('1');

ALTER TABLE ONLY lakelog.key_append ATTACH PARTITION lakelog.key_append_2 FOR VALUES IN ('2');

ALTER TABLE ONLY lakelog.key_append ATTACH PARTITION lakelog.key_append_3 FOR VALUES IN ('3');

ALTER TABLE ONLY lakelog.key_append ATTACH PARTITION lakelog.key_append_4 FOR VALUES IN ('4');

ALTER TABLE ONLY lakelog.key_append ATTACH PARTITION lakelog.key_append_5 FOR VALUES IN ('5');

ALTER TABLE ONLY lakelog.key_reservation ATTACH PARTITION lakelog.key_reservation_0 FOR VALUES IN ('0');

ALTER TABLE ONLY lakelog.key_reservation ATTACH PARTITION lakelog.key_reservation_1 FOR VALUES IN ('1');

ALTER TABLE ONLY lakelog.key_reservation ATTACH PARTITION lakelog.key_reservation_2 FOR VALUES IN ('2');

ALTER TABLE ONLY lakelog.key_reservation ATTACH PARTITION lakelog.key_reservation_3 FOR VALUES IN ('3');

ALTER TABLE ONLY lakelog.key_reservation ATTACH PARTITION lakelog.key_reservation_4 FOR VALUES IN ('4');

ALTER TABLE ONLY lakelog.key_reservation ATTACH PARTITION lakelog.key_reservation_5 FOR VALUES IN ('5');

ALTER TABLE ONLY lakelog.once_value ATTACH PARTITION lakelog.once_value_0 FOR VALUES IN ('0');

ALTER TABLE ONLY lakelog.once_value ATTACH PARTITION lakelog.once_value_1 FOR VALUES IN ('1');

ALTER TABLE ONLY lakelog.once_value ATTACH PARTITION lakelog.once_value_2 FOR VALUES IN ('2');

ALTER TABLE ONLY lakelog.once_value ATTACH PARTITION lakelog.once_value_3 FOR VALUES IN ('3');

ALTER TABLE ONLY lakelog.once_value ATTACH PARTITION lakelog.once_value_4 FOR VALUES IN ('4');

ALTER TABLE ONLY lakelog.producer ATTACH PARTITION lakelog.producer_0 FOR VALUES IN ('0');

ALTER TABLE ONLY lakelog.producer ATTACH PARTITION lakelog.producer_1 FOR VALUES IN ('1');

ALTER TABLE ONLY lakelog.producer ATTACH PARTITION lakelog.producer_2 FOR VALUES IN ('2');

ALTER TABLE ONLY lakelog.producer ATTACH PARTITION lakelog.producer_3 FOR VALUES IN ('3');

ALTER TABLE ONLY lakelog.producer ATTACH PARTITION lakelog.producer_4 FOR VALUES IN ('4');

ALTER TABLE ONLY lakelog.audit
    ADD CONSTRAINT audit_pkey PRIMARY KEY (number);

ALTER TABLE ONLY lakelog.backup_mark
    ADD CONSTRAINT backup_mark_pkey PRIMARY KEY (name);

ALTER TABLE ONLY lakelog.cell
    ADD CONSTRAINT cell_name_key UNIQUE (name);

ALTER TABLE ONLY lakelog.cell
    ADD CONSTRAINT cell_pkey PRIMARY KEY (cell);

ALTER TABLE ONLY lakelog.closed_partition
    ADD CONSTRAINT closed_partition_pkey PRIMARY KEY (pid);

ALTER TABLE ONLY lakelog.closed_topic
    ADD CONSTRAINT closed_topic_pkey PRIMARY KEY (incarnation);

ALTER TABLE ONLY lakelog.consumer_group
    ADD CONSTRAINT consumer_group_pkey PRIMARY KEY (group_id);

ALTER TABLE ONLY lakelog.dead_letter
    ADD CONSTRAINT dead_letter_pkey PRIMARY KEY (group_id, pid, message_offset, epoch);

ALTER TABLE ONLY lakelog.decision
    ADD CONSTRAINT decision_pkey PRIMARY KEY (incarnation, write_id);

ALTER TABLE ONLY lakelog.environment
    ADD CONSTRAINT environment_pkey PRIMARY KEY (environment_id);

ALTER TABLE ONLY lakelog.environment
    ADD CONSTRAINT environment_project_name_key UNIQUE (project, name);

ALTER TABLE ONLY lakelog.group_topic
    ADD CONSTRAINT group_topic_pkey PRIMARY KEY (group_id, incarnation);

ALTER TABLE ONLY lakelog.head
    ADD CONSTRAINT head_pkey PRIMARY KEY (pid, version);

ALTER TABLE ONLY lakelog.heartbeat
    ADD CONSTRAINT heartbeat_pkey PRIMARY KEY (group_id, member_id);

ALTER TABLE ONLY lakelog.hot_1
    ADD CONSTRAINT hot_1_pkey PRIMARY KEY (pid, end_offset);

ALTER TABLE ONLY lakelog.iceberg_file
    ADD CONSTRAINT iceberg_file_pkey PRIMARY KEY (path);

ALTER TABLE ONLY lakelog.iceberg_table
    ADD CONSTRAINT iceberg_table_pkey PRIMARY KEY (incarnation, kind);

ALTER TABLE ONLY lakelog.installation
    ADD CONSTRAINT installation_pkey PRIMARY KEY (only_row);

ALTER TABLE ONLY lakelog.journal
    ADD CONSTRAINT journal_pkey PRIMARY KEY (group_id, pid, version);

ALTER TABLE ONLY lakelog.key_append
    ADD CONSTRAINT key_append_pkey PRIMARY KEY (pid, key_hash, slot);

ALTER TABLE ONLY lakelog.key_append_0
    ADD CONSTRAINT key_append_0_pkey PRIMARY KEY (pid, key_hash, slot);

ALTER TABLE ONLY lakelog.key_append_1
    ADD CONSTRAINT key_append_1_pkey PRIMARY KEY (pid, key_hash, slot);

ALTER TABLE ONLY lakelog.key_append_2
    ADD CONSTRAINT key_append_2_pkey PRIMARY KEY (pid, key_hash, slot);

ALTER TABLE ONLY lakelog.key_append_3
    ADD CONSTRAINT key_append_3_pkey PRIMARY KEY (pid, key_hash, slot);

ALTER TABLE ONLY lakelog.key_append_4
    ADD CONSTRAINT key_append_4_pkey PRIMARY KEY (pid, key_hash, slot);

ALTER TABLE ONLY lakelog.key_append_5
    ADD CONSTRAINT key_append_5_pkey PRIMARY KEY (pid, key_hash, slot);

ALTER TABLE ONLY lakelog.key_reservation
    ADD CONSTRAINT key_reservation_pkey PRIMARY KEY (incarnation, key_hash, slot);

ALTER TABLE ONLY lakelog.key_reservation_0
    ADD CONSTRAINT key_reservation_0_pkey PRIMARY KEY (incarnation, key_hash, slot);

ALTER TABLE ONLY lakelog.key_reservation_1
    ADD CONSTRAINT key_reservation_1_pkey PRIMARY KEY (incarnation, key_hash, slot);

ALTER TABLE ONLY lakelog.key_reservation_2
    ADD CONSTRAINT key_reservation_2_pkey PRIMARY KEY (incarnation, key_hash, slot);

ALTER TABLE ONLY lakelog.key_reservation_3
    ADD CONSTRAINT key_reservation_3_pkey PRIMARY KEY (incarnation, key_hash, slot);

ALTER TABLE ONLY lakelog.key_reservation_4
    ADD CONSTRAINT key_reservation_4_pkey PRIMARY KEY (incarnation, key_hash, slot);

ALTER TABLE ONLY lakelog.key_reservation_5
    ADD CONSTRAINT key_reservation_5_pkey PRIMARY KEY (incarnation, key_hash, slot);

ALTER TABLE ONLY lakelog.keyed_append
    ADD CONSTRAINT keyed_append_pkey PRIMARY KEY (pid, key_hash);

ALTER TABLE ONLY lakelog.loaded
    ADD CONSTRAINT loaded_pkey PRIMARY KEY (pid, name);

ALTER TABLE ONLY lakelog.members
    ADD CONSTRAINT members_pkey PRIMARY KEY (group_id, version);

ALTER TABLE ONLY lakelog.migration
    ADD CONSTRAINT migration_pkey PRIMARY KEY (version);

ALTER TABLE ONLY lakelog.once_value
    ADD CONSTRAINT once_value_pkey PRIMARY KEY (group_id, incarnation, value_hash, slot);

ALTER TABLE ONLY lakelog.once_value_0
    ADD CONSTRAINT once_value_0_pkey PRIMARY KEY (group_id, incarnation, value_hash, slot);

ALTER TABLE ONLY lakelog.once_value_1
    ADD CONSTRAINT once_value_1_pkey PRIMARY KEY (group_id, incarnation, value_hash, slot);

ALTER TABLE ONLY lakelog.once_value_2
    ADD CONSTRAINT once_value_2_pkey PRIMARY KEY (group_id, incarnation, value_hash, slot);

ALTER TABLE ONLY lakelog.once_value_3
    ADD CONSTRAINT once_value_3_pkey PRIMARY KEY (group_id, incarnation, value_hash, slot);

ALTER TABLE ONLY lakelog.once_value_4
    ADD CONSTRAINT once_value_4_pkey PRIMARY KEY (group_id, incarnation, value_hash, slot);

ALTER TABLE ONLY lakelog.orphan
    ADD CONSTRAINT orphan_pkey PRIMARY KEY (path);

ALTER TABLE ONLY lakelog.outbox_relay
    ADD CONSTRAINT outbox_relay_pkey PRIMARY KEY (outbox_id);

ALTER TABLE ONLY lakelog.partition
    ADD CONSTRAINT partition_pkey PRIMARY KEY (pid);

ALTER TABLE ONLY lakelog.period
    ADD CONSTRAINT period_pkey PRIMARY KEY (slot);

ALTER TABLE ONLY lakelog.pipeline_run
    ADD CONSTRAINT pipeline_run_pkey PRIMARY KEY (run_id);

ALTER TABLE ONLY lakelog.producer
    ADD CONSTRAINT producer_pkey PRIMARY KEY (pid, producer, last, slot);

ALTER TABLE ONLY lakelog.producer_0
    ADD CONSTRAINT producer_0_pkey PRIMARY KEY (pid, producer, last, slot);

ALTER TABLE ONLY lakelog.producer_1
    ADD CONSTRAINT producer_1_pkey PRIMARY KEY (pid, producer, last, slot);

ALTER TABLE ONLY lakelog.producer_2
    ADD CONSTRAINT producer_2_pkey PRIMARY KEY (pid, producer, last, slot);

ALTER TABLE ONLY lakelog.producer_3
    ADD CONSTRAINT producer_3_pkey PRIMARY KEY (pid, producer, last, slot);

ALTER TABLE ONLY lakelog.producer_4
    ADD CONSTRAINT producer_4_pkey PRIMARY KEY (pid, producer, last, slot);

ALTER TABLE ONLY lakelog.producer_batch
    ADD CONSTRAINT producer_batch_pkey PRIMARY KEY (pid, producer, sequence);

ALTER TABLE ONLY lakelog.promoted
    ADD CONSTRAINT promoted_pkey PRIMARY KEY (pid, write_id);

ALTER TABLE ONLY lakelog.rejected_message
    ADD CONSTRAINT rejected_message_environment_id_message_id_key UNIQUE (environment_id, message_id);

ALTER TABLE ONLY lakelog.rejected_message
    ADD CONSTRAINT rejected_message_pkey PRIMARY KEY (number);

ALTER TABLE ONLY lakelog.reservation
    ADD CONSTRAINT reservation_pkey PRIMARY KEY (incarnation, key_hash);

ALTER TABLE ONLY lakelog.roll
    ADD CONSTRAINT roll_pkey PRIMARY KEY (roll);

ALTER TABLE ONLY lakelog.runner
    ADD CONSTRAINT runner_pkey PRIMARY KEY (task);

ALTER TABLE ONLY lakelog.sample_hour
    ADD CONSTRAINT sample_hour_pkey PRIMARY KEY (series, minute);

ALTER TABLE ONLY lakelog.sample_minute
    ADD CONSTRAINT sample_minute_pkey PRIMARY KEY (series, minute);

ALTER TABLE ONLY lakelog.sample_series
    ADD CONSTRAINT sample_series_group_id_incarnation_key UNIQUE (group_id, incarnation);

ALTER TABLE ONLY lakelog.sample_series
    ADD CONSTRAINT sample_series_pkey PRIMARY KEY (series);

ALTER TABLE ONLY lakelog.sample_ten_minutes
    ADD CONSTRAINT sample_ten_minutes_pkey PRIMARY KEY (series, minute);

ALTER TABLE ONLY lakelog.scheduled
    ADD CONSTRAINT scheduled_pkey PRIMARY KEY (pid, mark);

ALTER TABLE ONLY lakelog.segment
    ADD CONSTRAINT segment_pkey PRIMARY KEY (pid, end_offset);

ALTER TABLE ONLY lakelog.server_key
    ADD CONSTRAINT server_key_pkey PRIMARY KEY (secret);

ALTER TABLE ONLY lakelog.server
    ADD CONSTRAINT server_pkey PRIMARY KEY (server_id);

ALTER TABLE ONLY lakelog.span
    ADD CONSTRAINT span_pkey PRIMARY KEY (pid, first_offset);

ALTER TABLE ONLY lakelog.staged
    ADD CONSTRAINT staged_pkey PRIMARY KEY (pid, write_id, attempt, number);

ALTER TABLE ONLY lakelog.timeline_end
    ADD CONSTRAINT timeline_end_pkey PRIMARY KEY (pid, timeline);

ALTER TABLE ONLY lakelog.timeline
    ADD CONSTRAINT timeline_pkey PRIMARY KEY (timeline);

ALTER TABLE ONLY lakelog.token
    ADD CONSTRAINT token_hash_key UNIQUE (hash);

ALTER TABLE ONLY lakelog.token
    ADD CONSTRAINT token_pkey PRIMARY KEY (token_id);

ALTER TABLE ONLY lakelog.topic
    ADD CONSTRAINT topic_pkey PRIMARY KEY (incarnation);

ALTER TABLE ONLY lakelog.topic_schema
    ADD CONSTRAINT topic_schema_pkey PRIMARY KEY (incarnation, version);

ALTER TABLE ONLY lakelog.unslotted
    ADD CONSTRAINT unslotted_pkey PRIMARY KEY (only_row);

CREATE INDEX audit_by_environment ON lakelog.audit USING btree (environment_id, at, number);

CREATE INDEX audit_by_time ON lakelog.audit USING btree (at);

CREATE INDEX closed_partition_by_time ON lakelog.closed_partition USING btree (closed_at, pid);

CREATE UNIQUE INDEX consumer_group_open ON lakelog.consumer_group USING btree (environment_id, name) WHERE (deleted_at IS NULL);

CREATE INDEX consumer_group_retention ON lakelog.consumer_group USING btree (group_id) WHERE ((deleted_at IS NULL) AND ((settings -> 'dead_letter_retention'::text) <> '{}'::jsonb));

CREATE INDEX consumer_group_to_close ON lakelog.consumer_group USING btree (group_id) WHERE ((deleted_at IS NOT NULL) AND (closed_at IS NULL));

CREATE INDEX dead_letter_by_age ON lakelog.dead_letter USING btree (group_id, pid, ((state > 0)), at);

CREATE INDEX dead_letter_by_fingerprint ON lakelog.dead_letter USING btree (group_id, pid, state, fingerprint, message_offset, epoch) INCLUDE (at);

CREATE INDEX dead_letter_by_state ON lakelog.dead_letter USING btree (group_id, pid, state, message_offset, epoch);

CREATE INDEX dead_letter_finished ON lakelog.dead_letter USING btree (group_id, pid, at) WHERE (state > 0);

CREATE INDEX decision_by_writer ON lakelog.decision USING btree (incarnation, writer, number);

CREATE INDEX decision_finished ON lakelog.decision USING btree (finished_at);

CREATE INDEX group_topic_by_topic ON lakelog.group_topic USING btree (incarnation);

CREATE INDEX iceberg_file_removed ON lakelog.iceberg_file USING btree (incarnation, removed);

CREATE INDEX incident_by_group ON ONLY lakelog.incident USING btree (group_id, at_ms);

CREATE INDEX incident_by_message ON ONLY lakelog.incident USING btree (pid, message_offset);

CREATE INDEX key_append_expired ON lakelog.key_append_5 USING btree (expires_at);

CREATE INDEX key_reservation_expired ON lakelog.key_reservation_5 USING btree (expires_at);

CREATE INDEX keyed_append_by_time ON lakelog.keyed_append USING brin (at) WITH (autosummarize='on');

CREATE UNIQUE INDEX period_active ON lakelog.period USING btree ((true)) WHERE ((began_at IS NOT NULL) AND (ended_at IS NULL));

CREATE UNIQUE INDEX pipeline_run_alive ON lakelog.pipeline_run USING btree (environment_id, pipeline, topic) WHERE (state = 'running'::text);

CREATE INDEX pipeline_run_newest ON lakelog.pipeline_run USING btree (environment_id, started_at DESC);

CREATE INDEX promoted_by_time ON lakelog.promoted USING brin (at) WITH (autosummarize='on');

CREATE INDEX rejected_message_by_environment ON lakelog.rejected_message USING btree (environment_id, number);

CREATE INDEX relayed_by_number ON lakelog.relayed USING gist (span);

CREATE INDEX relayed_by_time ON lakelog.relayed USING btree (outbox_id, relayed_at);

CREATE INDEX reservation_by_time ON lakelog.reservation USING brin (at) WITH (autosummarize='on');

CREATE INDEX scheduled_due ON lakelog.scheduled USING btree (due_at, scheduled_at, number) WHERE (state = 0);

CREATE INDEX scheduled_ended ON lakelog.scheduled USING btree (ended_at) WHERE (state > 0);

CREATE INDEX scheduled_listed ON lakelog.scheduled USING btree (pid, due_at, mark) WHERE (state = 0);

CREATE UNIQUE INDEX segment_by_path ON lakelog.segment USING btree (path);

CREATE INDEX segment_unverified ON lakelog.segment USING btree (pid, end_offset) WHERE (verified_at IS NULL);

CREATE INDEX span_by_roll ON lakelog.span USING btree (roll);

CREATE INDEX staged_by_roll ON lakelog.staged USING btree (roll);

CREATE INDEX token_by_parent ON lakelog.token USING btree (parent_id, expires_at) WHERE (parent_id IS NOT NULL);

CREATE UNIQUE INDEX topic_open ON lakelog.topic USING btree (environment_id, name) WHERE (deleted_at IS NULL);

CREATE INDEX topic_to_close ON lakelog.topic USING btree (incarnation) WHERE ((deleted_at IS NOT NULL) AND (closed_at IS NULL));

ALTER INDEX lakelog.key_append_pkey ATTACH PARTITION lakelog.key_append_0_pkey;

ALTER INDEX lakelog.key_append_pkey ATTACH PARTITION lakelog.key_append_1_pkey;

ALTER INDEX lakelog.key_append_pkey ATTACH PARTITION lakelog.key_append_2_pkey;

ALTER INDEX lakelog.key_append_pkey ATTACH PARTITION lakelog.key_append_3_pkey;

ALTER INDEX lakelog.key_append_pkey ATTACH PARTITION lakelog.key_append_4_pkey;

ALTER INDEX lakelog.key_append_pkey ATTACH PARTITION lakelog.key_append_5_pkey;

ALTER INDEX lakelog.key_reservation_pkey ATTACH PARTITION lakelog.key_reservation_0_pkey;

ALTER INDEX lakelog.key_reservation_pkey ATTACH PARTITION lakelog.key_reservation_1_pkey;

ALTER INDEX lakelog.key_reservation_pkey ATTACH PARTITION lakelog.key_reservation_2_pkey;

ALTER INDEX lakelog.key_reservation_pkey ATTACH PARTITION lakelog.key_reservation_3_pkey;

ALTER INDEX lakelog.key_reservation_pkey ATTACH PARTITION lakelog.key_reservation_4_pkey;

ALTER INDEX lakelog.key_reservation_pkey ATTACH PARTITION lakelog.key_reservation_5_pkey;

ALTER INDEX lakelog.once_value_pkey ATTACH PARTITION lakelog.once_value_0_pkey;

ALTER INDEX lakelog.once_value_pkey ATTACH PARTITION lakelog.once_value_1_pkey;

ALTER INDEX lakelog.once_value_pkey ATTACH PARTITION lakelog.once_value_2_pkey;

ALTER INDEX lakelog.once_value_pkey ATTACH PARTITION lakelog.once_value_3_pkey;

ALTER INDEX lakelog.once_value_pkey ATTACH PARTITION lakelog.once_value_4_pkey;

ALTER INDEX lakelog.producer_pkey ATTACH PARTITION lakelog.producer_0_pkey;

ALTER INDEX lakelog.producer_pkey ATTACH PARTITION lakelog.producer_1_pkey;

ALTER INDEX lakelog.producer_pkey ATTACH PARTITION lakelog.producer_2_pkey;

ALTER INDEX lakelog.producer_pkey ATTACH PARTITION lakelog.producer_3_pkey;

ALTER INDEX lakelog.producer_pkey ATTACH PARTITION lakelog.producer_4_pkey;

CREATE TRIGGER reservation_moved BEFORE INSERT ON lakelog.reservation FOR EACH STATEMENT EXECUTE FUNCTION lakelog.reservation_moved();

CREATE TRIGGER topic_version BEFORE UPDATE OF settings, cells ON lakelog.topic FOR EACH ROW WHEN ((new.version = old.version)) EXECUTE FUNCTION lakelog.topic_version_raise();

ALTER TABLE ONLY lakelog.consumer_group
    ADD CONSTRAINT consumer_group_environment_id_fkey FOREIGN KEY (environment_id) REFERENCES lakelog.environment(environment_id);

ALTER TABLE ONLY lakelog.group_topic
    ADD CONSTRAINT group_topic_group_id_fkey FOREIGN KEY (group_id) REFERENCES lakelog.consumer_group(group_id);

ALTER TABLE ONLY lakelog.iceberg_file
    ADD CONSTRAINT iceberg_file_incarnation_kind_fkey FOREIGN KEY (incarnation, kind) REFERENCES lakelog.iceberg_table(incarnation, kind) ON DELETE CASCADE;

ALTER TABLE ONLY lakelog.iceberg_table
    ADD CONSTRAINT iceberg_table_incarnation_fkey FOREIGN KEY (incarnation) REFERENCES lakelog.topic(incarnation);

ALTER TABLE ONLY lakelog.loaded
    ADD CONSTRAINT loaded_pid_fkey FOREIGN KEY (pid) REFERENCES lakelog.partition(pid) ON DELETE CASCADE;

ALTER TABLE ONLY lakelog.pipeline_run
    ADD CONSTRAINT pipeline_run_environment_id_fkey FOREIGN KEY (environment_id) REFERENCES lakelog.environment(environment_id);

ALTER TABLE ONLY lakelog.timeline_end
    ADD CONSTRAINT timeline_end_pid_fkey FOREIGN KEY (pid) REFERENCES lakelog.partition(pid) ON DELETE CASCADE;

ALTER TABLE ONLY lakelog.token
    ADD CONSTRAINT token_environment_id_fkey FOREIGN KEY (environment_id) REFERENCES lakelog.environment(environment_id);

ALTER TABLE ONLY lakelog.token
    ADD CONSTRAINT token_parent_id_fkey FOREIGN KEY (parent_id) REFERENCES lakelog.token(token_id);

ALTER TABLE ONLY lakelog.topic
    ADD CONSTRAINT topic_environment_id_fkey FOREIGN KEY (environment_id) REFERENCES lakelog.environment(environment_id);

GRANT USAGE ON SCHEMA lakelog TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.append(p_roll integer, p_pid bigint, p_epoch integer, p_count integer, p_bytes bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.append(p_roll integer, p_pid bigint, p_epoch integer, p_count integer, p_bytes bigint) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.append(p_roll integer, p_pid bigint, p_epoch integer, p_count integer, p_bytes bigint, p_producer bytea, p_sequence bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.append(p_roll integer, p_pid bigint, p_epoch integer, p_count integer, p_bytes bigint, p_producer bytea, p_sequence bigint) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.append(p_roll integer, p_pids bigint[], p_epochs integer[], p_counts integer[], p_bytes bigint[], q_pids bigint[], q_producers bytea[], q_sequences bigint[], q_starts integer[], q_counts integer[], k_pids bigint[], k_hashes bytea[], k_starts integer[]) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.append(p_roll integer, p_pids bigint[], p_epochs integer[], p_counts integer[], p_bytes bigint[], q_pids bigint[], q_producers bytea[], q_sequences bigint[], q_starts integer[], q_counts integer[], k_pids bigint[], k_hashes bytea[], k_starts integer[]) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.append(p_roll integer, p_pids bigint[], p_epochs integer[], p_counts integer[], p_bytes bigint[], q_pids bigint[], q_producers bytea[], q_sequences bigint[], q_starts integer[], q_counts integer[], k_pids bigint[], k_hashes bytea[], k_starts integer[], k_memories interval[]) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.append(p_roll integer, p_pids bigint[], p_epochs integer[], p_counts integer[], p_bytes bigint[], q_pids bigint[], q_producers bytea[], q_sequences bigint[], q_starts integer[], q_counts integer[], k_pids bigint[], k_hashes bytea[], k_starts integer[], k_memories interval[]) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.audit_trim(p_rows integer) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.audit_trim(p_rows integer) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.dead_discard(p_group bigint, p_pids bigint[], p_offsets bigint[], p_epochs integer[]) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.dead_discard(p_group bigint, p_pids bigint[], p_offsets bigint[], p_epochs integer[]) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.deliver(p_roll integer, p_pids bigint[], p_epochs integer[], p_counts integer[], p_bytes bigint[], q_pids bigint[], q_producers bytea[], q_sequences bigint[], q_starts integer[], q_counts integer[], k_pids bigint[], k_hashes bytea[], k_starts integer[], k_memories interval[]) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.deliver(p_roll integer, p_pids bigint[], p_epochs integer[], p_counts integer[], p_bytes bigint[], q_pids bigint[], q_producers bytea[], q_sequences bigint[], q_starts integer[], q_counts integer[], k_pids bigint[], k_hashes bytea[], k_starts integer[], k_memories interval[]) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.heads_change(p_pids bigint[], p_state smallint, p_epoch integer) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.heads_change(p_pids bigint[], p_state smallint, p_epoch integer) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.heads_create(p_pids bigint[], p_epoch integer) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.heads_create(p_pids bigint[], p_epoch integer) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.heads_trim() FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.heads_trim() TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.heads_trim_some(p_after bigint, p_partitions integer, p_rows bigint, OUT next_after bigint, OUT trimmed bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.heads_trim_some(p_after bigint, p_partitions integer, p_rows bigint, OUT next_after bigint, OUT trimmed bigint) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.heartbeats_write(p_groups bigint[], p_members text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.heartbeats_write(p_groups bigint[], p_members text[]) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.history_extend(p_table text, p_now bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.history_extend(p_table text, p_now bigint) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.history_lengths(p_table text, OUT width bigint, OUT kept bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.history_lengths(p_table text, OUT width bigint, OUT kept bigint) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.hot_batch_at(p_pid bigint, p_offset bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.hot_batch_at(p_pid bigint, p_offset bigint) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.hot_table_create(p_roll integer, p_kept boolean) FROM PUBLIC;

REVOKE ALL ON FUNCTION lakelog.iceberg_commit(p_incarnation bigint, p_version bigint, p_metadata text, p_added text[], p_removed text[], p_oldest bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.iceberg_commit(p_incarnation bigint, p_version bigint, p_metadata text, p_added text[], p_removed text[], p_oldest bigint) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.iceberg_commit(p_incarnation bigint, p_kind text, p_version bigint, p_metadata text, p_added text[], p_removed text[], p_oldest bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.iceberg_commit(p_incarnation bigint, p_kind text, p_version bigint, p_metadata text, p_added text[], p_removed text[], p_oldest bigint) TO lakelog_service;

GRANT SELECT,INSERT,DELETE ON TABLE lakelog.journal TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.journal_cut(p_newest lakelog.journal, p_before timestamp with time zone, p_limit bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.journal_cut(p_newest lakelog.journal, p_before timestamp with time zone, p_limit bigint) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.journal_drop(p_group bigint, p_pid bigint, p_limit bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.journal_drop(p_group bigint, p_pid bigint, p_limit bigint) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.journals_commit(p_groups bigint[], p_pids bigint[], p_versions bigint[], p_snapshots boolean[], p_bodies bytea[], p_not_before bigint[], p_not_after bigint[], d_parts integer[], d_offsets bigint[], d_epochs integer[], d_deliveries integer[], d_failures integer[], d_reasons text[], d_owners text[], d_payloads bytea[], OUT clock_ms bigint, OUT statuses smallint[]) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.journals_commit(p_groups bigint[], p_pids bigint[], p_versions bigint[], p_snapshots boolean[], p_bodies bytea[], p_not_before bigint[], p_not_after bigint[], d_parts integer[], d_offsets bigint[], d_epochs integer[], d_deliveries integer[], d_failures integer[], d_reasons text[], d_owners text[], d_payloads bytea[], OUT clock_ms bigint, OUT statuses smallint[]) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.journals_commit_dead(p_groups bigint[], p_pids bigint[], p_versions bigint[], p_snapshots boolean[], p_bodies bytea[], p_not_before bigint[], p_not_after bigint[], d_parts integer[], d_offsets bigint[], d_epochs integer[], d_deliveries integer[], d_failures integer[], d_reasons text[], d_owners text[], d_payloads bytea[], d_tracebacks text[], OUT clock_ms bigint, OUT statuses smallint[]) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.journals_commit_dead(p_groups bigint[], p_pids bigint[], p_versions bigint[], p_snapshots boolean[], p_bodies bytea[], p_not_before bigint[], p_not_after bigint[], d_parts integer[], d_offsets bigint[], d_epochs integer[], d_deliveries integer[], d_failures integer[], d_reasons text[], d_owners text[], d_payloads bytea[], d_tracebacks text[], OUT clock_ms bigint, OUT statuses smallint[]) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.journals_commit_without_nonces(p_groups bigint[], p_pids bigint[], p_versions bigint[], p_snapshots boolean[], p_bodies bytea[], p_not_before bigint[], p_not_after bigint[], d_parts integer[], d_offsets bigint[], d_epochs integer[], d_deliveries integer[], d_failures integer[], d_reasons text[], d_owners text[], d_payloads bytea[], OUT clock_ms bigint, OUT statuses smallint[]) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.journals_commit_without_nonces(p_groups bigint[], p_pids bigint[], p_versions bigint[], p_snapshots boolean[], p_bodies bytea[], p_not_before bigint[], p_not_after bigint[], d_parts integer[], d_offsets bigint[], d_epochs integer[], d_deliveries integer[], d_failures integer[], d_reasons text[], d_owners text[], d_payloads bytea[], OUT clock_ms bigint, OUT statuses smallint[]) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.journals_trim(p_grace interval, p_dropped bigint[], p_limit bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.journals_trim(p_grace interval, p_dropped bigint[], p_limit bigint) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.journals_trim_some(p_grace interval, p_dropped bigint[], p_limit bigint, p_journals integer, p_group bigint, p_pid bigint, OUT trimmed bigint, OUT next_group bigint, OUT next_pid bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.journals_trim_some(p_grace interval, p_dropped bigint[], p_limit bigint, p_journals integer, p_group bigint, p_pid bigint, OUT trimmed bigint, OUT next_group bigint, OUT next_pid bigint) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.journals_withdraw(p_groups bigint[], p_pids bigint[], p_versions bigint[], p_not_after bigint[], p_statuses smallint[], p_ms bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.journals_withdraw(p_groups bigint[], p_pids bigint[], p_versions bigint[], p_not_after bigint[], p_statuses smallint[], p_ms bigint) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.journals_write(p_groups bigint[], p_pids bigint[], p_versions bigint[], p_nonces bigint[], p_after_nonces bigint[], p_snapshots boolean[], p_bodies bytea[], p_not_before bigint[], p_not_after bigint[], d_parts integer[], d_offsets bigint[], d_epochs integer[], d_deliveries integer[], d_failures integer[], d_reasons text[], d_owners text[], d_payloads bytea[], d_tracebacks text[], OUT clock_ms bigint, OUT statuses smallint[]) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.journals_write(p_groups bigint[], p_pids bigint[], p_versions bigint[], p_nonces bigint[], p_after_nonces bigint[], p_snapshots boolean[], p_bodies bytea[], p_not_before bigint[], p_not_after bigint[], d_parts integer[], d_offsets bigint[], d_epochs integer[], d_deliveries integer[], d_failures integer[], d_reasons text[], d_owners text[], d_payloads bytea[], d_tracebacks text[], OUT clock_ms bigint, OUT statuses smallint[]) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.journals_write_noted(p_groups bigint[], p_pids bigint[], p_versions bigint[], p_nonces bigint[], p_after_nonces bigint[], p_snapshots boolean[], p_bodies bytea[], p_not_before bigint[], p_not_after bigint[], d_parts integer[], d_offsets bigint[], d_epochs integer[], d_deliveries integer[], d_failures integer[], d_reasons text[], d_owners text[], d_payloads bytea[], d_tracebacks text[], o_parts integer[], o_incarnations bigint[], o_hashes bytea[], d_fingerprints bigint[], i_parts integer[], i_offsets bigint[], i_epochs integer[], i_kinds smallint[], i_deliveries integer[], i_failures integer[], i_owners text[], i_leased bigint[], i_due bigint[], i_fingerprints bigint[], i_left_out integer[], i_reasons text[], i_tracebacks text[], OUT clock_ms bigint, OUT statuses smallint[], OUT taken integer[]) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.journals_write_noted(p_groups bigint[], p_pids bigint[], p_versions bigint[], p_nonces bigint[], p_after_nonces bigint[], p_snapshots boolean[], p_bodies bytea[], p_not_before bigint[], p_not_after bigint[], d_parts integer[], d_offsets bigint[], d_epochs integer[], d_deliveries integer[], d_failures integer[], d_reasons text[], d_owners text[], d_payloads bytea[], d_tracebacks text[], o_parts integer[], o_incarnations bigint[], o_hashes bytea[], d_fingerprints bigint[], i_parts integer[], i_offsets bigint[], i_epochs integer[], i_kinds smallint[], i_deliveries integer[], i_failures integer[], i_owners text[], i_leased bigint[], i_due bigint[], i_fingerprints bigint[], i_left_out integer[], i_reasons text[], i_tracebacks text[], OUT clock_ms bigint, OUT statuses smallint[], OUT taken integer[]) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.journals_write_once(p_groups bigint[], p_pids bigint[], p_versions bigint[], p_nonces bigint[], p_after_nonces bigint[], p_snapshots boolean[], p_bodies bytea[], p_not_before bigint[], p_not_after bigint[], d_parts integer[], d_offsets bigint[], d_epochs integer[], d_deliveries integer[], d_failures integer[], d_reasons text[], d_owners text[], d_payloads bytea[], d_tracebacks text[], o_parts integer[], o_incarnations bigint[], o_hashes bytea[], OUT clock_ms bigint, OUT statuses smallint[], OUT taken integer[]) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.journals_write_once(p_groups bigint[], p_pids bigint[], p_versions bigint[], p_nonces bigint[], p_after_nonces bigint[], p_snapshots boolean[], p_bodies bytea[], p_not_before bigint[], p_not_after bigint[], d_parts integer[], d_offsets bigint[], d_epochs integer[], d_deliveries integer[], d_failures integer[], d_reasons text[], d_owners text[], d_payloads bytea[], d_tracebacks text[], o_parts integer[], o_incarnations bigint[], o_hashes bytea[], OUT clock_ms bigint, OUT statuses smallint[], OUT taken integer[]) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.keys_trim_long(p_limit bigint, OUT appends bigint, OUT reservations bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.keys_trim_long(p_limit bigint, OUT appends bigint, OUT reservations bigint) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.lock_key(p_pid bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.lock_key(p_pid bigint) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.lock_partitions(p_pids bigint[]) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.lock_partitions(p_pids bigint[]) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.log_start_raise(p_pids bigint[], p_starts bigint[]) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.log_start_raise(p_pids bigint[], p_starts bigint[]) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.members_write(p_group bigint, p_version bigint, p_body bytea) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.members_write(p_group bigint, p_version bigint, p_body bytea) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.ms(p_time timestamp with time zone) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.ms(p_time timestamp with time zone) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.offset_search(p_pid bigint, p_time timestamp with time zone, p_max_bytes bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.offset_search(p_pid bigint, p_time timestamp with time zone, p_max_bytes bigint) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.once_find(p_group bigint, p_incarnation bigint, p_hashes bytea[]) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.once_find(p_group bigint, p_incarnation bigint, p_hashes bytea[]) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.once_memory() FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.once_memory() TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.outbox_reject(r_outbox bigint, r_epoch bigint, r_numbers bigint[], r_salts integer[], p_environment bigint, p_message_ids text[], p_topics text[], p_codes text[], p_reasons text[], p_partitions integer[], p_payloads bytea[]) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.outbox_reject(r_outbox bigint, r_epoch bigint, r_numbers bigint[], r_salts integer[], p_environment bigint, p_message_ids text[], p_topics text[], p_codes text[], p_reasons text[], p_partitions integer[], p_payloads bytea[]) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.partitions_remove(p_grace interval, p_limit integer) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.partitions_remove(p_grace interval, p_limit integer) TO lakelog_service;

GRANT SELECT,INSERT,DELETE ON TABLE lakelog.partition TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.partitions_walk(p_after bigint, p_partitions integer) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.partitions_walk(p_after bigint, p_partitions integer) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.period_begin(p_length interval) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.period_begin(p_length interval) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.period_empty() FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.period_empty() TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.period_memory() FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.period_memory() TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.period_slots(OUT active smallint, OUT used smallint[]) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.period_slots(OUT active smallint, OUT used smallint[]) TO lakelog_service;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE lakelog.pipeline_run TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.pipeline_begin(p_environment bigint, p_run text, p_pipeline text, p_topic text, p_host text, p_alive interval, p_kept integer) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.pipeline_begin(p_environment bigint, p_run text, p_pipeline text, p_topic text, p_host text, p_alive interval, p_kept integer) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.producer_find(p_pid bigint, p_producer bytea, p_slots smallint[], p_now timestamp with time zone) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.producer_find(p_pid bigint, p_producer bytea, p_slots smallint[], p_now timestamp with time zone) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.producers_trim(p_memory interval) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.producers_trim(p_memory interval) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.producers_trim_some(p_memory interval, p_after bigint, p_partitions integer, p_rows bigint, OUT next_after bigint, OUT trimmed bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.producers_trim_some(p_memory interval, p_after bigint, p_partitions integer, p_rows bigint, OUT next_after bigint, OUT trimmed bigint) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.producers_trim_superseded(p_after bigint, p_partitions integer, p_rows bigint, OUT next_after bigint, OUT trimmed bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.producers_trim_superseded(p_after bigint, p_partitions integer, p_rows bigint, OUT next_after bigint, OUT trimmed bigint) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.promote(p_pid bigint, p_write text, p_attempts text[], OUT status smallint, OUT base bigint, OUT count bigint, OUT appended_at timestamp with time zone) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.promote(p_pid bigint, p_write text, p_attempts text[], OUT status smallint, OUT base bigint, OUT count bigint, OUT appended_at timestamp with time zone) TO lakelog_service;

GRANT SELECT,INSERT,DELETE ON TABLE lakelog.head TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.promote_roll(p_head lakelog.head, p_roll integer, p_write text, p_attempts text[], p_at timestamp with time zone) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.promote_roll(p_head lakelog.head, p_roll integer, p_write text, p_attempts text[], p_at timestamp with time zone) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.promote_spans(p_head lakelog.head, p_write text, p_attempts text[]) FROM PUBLIC;

REVOKE ALL ON FUNCTION lakelog.redrive(r_group bigint, r_offsets bigint[], r_epochs integer[], p_roll integer, p_pids bigint[], p_epochs integer[], p_counts integer[], p_bytes bigint[], q_pids bigint[], q_producers bytea[], q_sequences bigint[], q_starts integer[], q_counts integer[], k_pids bigint[], k_hashes bytea[], k_starts integer[]) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.redrive(r_group bigint, r_offsets bigint[], r_epochs integer[], p_roll integer, p_pids bigint[], p_epochs integer[], p_counts integer[], p_bytes bigint[], q_pids bigint[], q_producers bytea[], q_sequences bigint[], q_starts integer[], q_counts integer[], k_pids bigint[], k_hashes bytea[], k_starts integer[]) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.relay(r_outbox bigint, r_epoch bigint, r_pids bigint[], r_numbers bigint[], r_salts integer[], p_roll integer, p_pids bigint[], p_epochs integer[], p_counts integer[], p_bytes bigint[], q_pids bigint[], q_producers bytea[], q_sequences bigint[], q_starts integer[], q_counts integer[], k_pids bigint[], k_hashes bytea[], k_starts integer[]) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.relay(r_outbox bigint, r_epoch bigint, r_pids bigint[], r_numbers bigint[], r_salts integer[], p_roll integer, p_pids bigint[], p_epochs integer[], p_counts integer[], p_bytes bigint[], q_pids bigint[], q_producers bytea[], q_sequences bigint[], q_starts integer[], q_counts integer[], k_pids bigint[], k_hashes bytea[], k_starts integer[]) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.relay_is_current(r_outbox bigint, r_epoch bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.relay_is_current(r_outbox bigint, r_epoch bigint) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.relayed_write(r_outbox bigint, r_pids bigint[], r_numbers bigint[], r_salts integer[], p_pids bigint[], p_bases bigint[]) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.relayed_write(r_outbox bigint, r_pids bigint[], r_numbers bigint[], r_salts integer[], p_pids bigint[], p_bases bigint[]) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.reservation_moved() FROM PUBLIC;

REVOKE ALL ON FUNCTION lakelog.reserve(p_durable boolean, p_incarnations bigint[], p_key_hashes bytea[], p_body_hashes bytea[], p_partitions integer[]) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.reserve(p_durable boolean, p_incarnations bigint[], p_key_hashes bytea[], p_body_hashes bytea[], p_partitions integer[]) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.reserve(p_durable boolean, p_incarnations bigint[], p_key_hashes bytea[], p_body_hashes bytea[], p_partitions integer[], p_memories interval[]) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.reserve(p_durable boolean, p_incarnations bigint[], p_key_hashes bytea[], p_body_hashes bytea[], p_partitions integer[], p_memories interval[]) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.roll_begin(p_expected integer) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.roll_begin(p_expected integer) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.roll_drop(p_roll integer, p_grace interval) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.roll_drop(p_roll integer, p_grace interval) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.roll_is_retired(p_roll integer, p_grace interval) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.roll_is_retired(p_roll integer, p_grace interval) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.roll_keep(p_roll integer, p_grace interval, p_bytes bigint, p_table_bytes bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.roll_keep(p_roll integer, p_grace interval, p_bytes bigint, p_table_bytes bigint) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.roll_surviving_bytes(p_roll integer, p_grace interval) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.roll_surviving_bytes(p_roll integer, p_grace interval) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.runner_elect(p_task text, p_runner text, p_lease interval) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.runner_elect(p_task text, p_runner text, p_lease interval) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.samples_write(p_minute integer, p_groups bigint[], p_incarnations bigint[], p_bodies bytea[]) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.samples_write(p_minute integer, p_groups bigint[], p_incarnations bigint[], p_bodies bytea[]) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.schedule(p_longest interval, s_pids bigint[], s_epochs integer[], s_marks bytea[], s_delays interval[], s_times timestamp with time zone[], s_memories interval[], s_expires bigint[], s_payloads bytea[]) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.schedule(p_longest interval, s_pids bigint[], s_epochs integer[], s_marks bytea[], s_delays interval[], s_times timestamp with time zone[], s_memories interval[], s_expires bigint[], s_payloads bytea[]) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.segments_load(p_name text, p_pids bigint[], p_firsts bigint[], p_fingerprints text[], s_pids bigint[], s_firsts bigint[], s_ends bigint[], s_paths text[], s_bytes bigint[], s_file_hashes text[], s_content_hashes text[], s_first_ats timestamp with time zone[], s_last_ats timestamp with time zone[], s_epochs integer[], s_groups text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.segments_load(p_name text, p_pids bigint[], p_firsts bigint[], p_fingerprints text[], s_pids bigint[], s_firsts bigint[], s_ends bigint[], s_paths text[], s_bytes bigint[], s_file_hashes text[], s_content_hashes text[], s_first_ats timestamp with time zone[], s_last_ats timestamp with time zone[], s_epochs integer[], s_groups text[]) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.segments_register(p_pids bigint[], p_firsts bigint[], p_ends bigint[], p_paths text[], p_bytes bigint[], p_file_hashes text[], p_content_hashes text[], p_first_ats timestamp with time zone[], p_last_ats timestamp with time zone[], p_epochs integer[], p_groups text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.segments_register(p_pids bigint[], p_firsts bigint[], p_ends bigint[], p_paths text[], p_bytes bigint[], p_file_hashes text[], p_content_hashes text[], p_first_ats timestamp with time zone[], p_last_ats timestamp with time zone[], p_epochs integer[], p_groups text[]) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.segments_replace(p_pid bigint, p_old_firsts bigint[], p_old_ends bigint[], p_old_paths text[], p_old_content_hashes text[], p_firsts bigint[], p_ends bigint[], p_paths text[], p_bytes bigint[], p_file_hashes text[], p_content_hashes text[], p_first_ats timestamp with time zone[], p_last_ats timestamp with time zone[], p_epochs integer[], p_groups text[], OUT status smallint, OUT reason text) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.segments_replace(p_pid bigint, p_old_firsts bigint[], p_old_ends bigint[], p_old_paths text[], p_old_content_hashes text[], p_firsts bigint[], p_ends bigint[], p_paths text[], p_bytes bigint[], p_file_hashes text[], p_content_hashes text[], p_first_ats timestamp with time zone[], p_last_ats timestamp with time zone[], p_epochs integer[], p_groups text[], OUT status smallint, OUT reason text) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.segments_trim() FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.segments_trim() TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.segments_trim_some(p_after bigint, p_partitions integer, OUT next_after bigint, OUT trimmed bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.segments_trim_some(p_after bigint, p_partitions integer, OUT next_after bigint, OUT trimmed bigint) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.span_keep(p_roll integer, p_pid bigint, p_first bigint, p_target integer, p_grace interval, p_bytes bigint) FROM PUBLIC;

REVOKE ALL ON FUNCTION lakelog.span_survivors(p_pid bigint, p_first bigint, p_grace interval) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.span_survivors(p_pid bigint, p_first bigint, p_grace interval) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.staged_discard(p_pid bigint, p_write text, p_bytes bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.staged_discard(p_pid bigint, p_write text, p_bytes bigint) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.tierable(p_pids bigint[], p_segment_bytes bigint, p_min_bytes bigint, p_min_age interval, p_limit integer) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.tierable(p_pids bigint[], p_segment_bytes bigint, p_min_bytes bigint, p_min_age interval, p_limit integer) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.tiered_end(p_pid bigint, p_log_start bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.tiered_end(p_pid bigint, p_log_start bigint) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.timeline_begin() FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.timeline_begin() TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.timeline_now() FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.timeline_now() TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.topic_version_raise() FROM PUBLIC;

REVOKE ALL ON FUNCTION lakelog.unslotted_check() FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.unslotted_check() TO lakelog_service;

GRANT SELECT,INSERT ON TABLE lakelog.audit TO lakelog_service;

GRANT UPDATE(outcome) ON TABLE lakelog.audit TO lakelog_service;

GRANT UPDATE(after) ON TABLE lakelog.audit TO lakelog_service;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE lakelog.backup_mark TO lakelog_service;

GRANT SELECT ON TABLE lakelog.cell TO lakelog_service;

GRANT SELECT,INSERT,DELETE ON TABLE lakelog.closed_partition TO lakelog_service;

GRANT SELECT,INSERT ON TABLE lakelog.closed_topic TO lakelog_service;

GRANT SELECT,INSERT,UPDATE ON TABLE lakelog.consumer_group TO lakelog_service;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE lakelog.dead_letter TO lakelog_service;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE lakelog.decision TO lakelog_service;

GRANT SELECT,INSERT ON TABLE lakelog.environment TO lakelog_service;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE lakelog.group_topic TO lakelog_service;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE lakelog.heartbeat TO lakelog_service;

GRANT SELECT,INSERT ON TABLE lakelog.hot_1 TO lakelog_service;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE lakelog.iceberg_file TO lakelog_service;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE lakelog.iceberg_table TO lakelog_service;

GRANT SELECT,INSERT ON TABLE lakelog.incident TO lakelog_service;

GRANT SELECT ON TABLE lakelog.installation TO lakelog_service;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE lakelog.key_append TO lakelog_service;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE lakelog.key_reservation TO lakelog_service;

GRANT SELECT,INSERT,DELETE ON TABLE lakelog.keyed_append TO lakelog_service;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE lakelog.loaded TO lakelog_service;

GRANT SELECT,INSERT,DELETE ON TABLE lakelog.members TO lakelog_service;

GRANT SELECT ON TABLE lakelog.migration TO lakelog_service;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE lakelog.once_value TO lakelog_service;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE lakelog.orphan TO lakelog_service;

GRANT SELECT,INSERT,UPDATE ON TABLE lakelog.outbox_relay TO lakelog_service;

GRANT SELECT ON TABLE lakelog.period TO lakelog_service;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE lakelog.producer TO lakelog_service;

GRANT SELECT,INSERT,DELETE ON TABLE lakelog.producer_batch TO lakelog_service;

GRANT SELECT,DELETE ON TABLE lakelog.promoted TO lakelog_service;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE lakelog.rejected_message TO lakelog_service;

GRANT SELECT,INSERT,DELETE ON TABLE lakelog.relayed TO lakelog_service;

GRANT SELECT,INSERT,DELETE ON TABLE lakelog.reservation TO lakelog_service;

GRANT UPDATE(at) ON TABLE lakelog.reservation TO lakelog_service;

GRANT SELECT ON TABLE lakelog.roll TO lakelog_service;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE lakelog.runner TO lakelog_service;

GRANT SELECT,INSERT ON TABLE lakelog.sample_hour TO lakelog_service;

GRANT SELECT,INSERT ON TABLE lakelog.sample_minute TO lakelog_service;

GRANT SELECT,INSERT,DELETE ON TABLE lakelog.sample_series TO lakelog_service;

GRANT SELECT,INSERT ON TABLE lakelog.sample_ten_minutes TO lakelog_service;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE lakelog.scheduled TO lakelog_service;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE lakelog.segment TO lakelog_service;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE lakelog.server TO lakelog_service;

GRANT SELECT,INSERT,DELETE ON TABLE lakelog.server_key TO lakelog_service;

GRANT SELECT,INSERT,UPDATE ON TABLE lakelog.span TO lakelog_service;

GRANT SELECT,INSERT ON TABLE lakelog.staged TO lakelog_service;

GRANT USAGE ON SEQUENCE lakelog.staged_slot TO lakelog_service;

GRANT SELECT,INSERT ON TABLE lakelog.timeline TO lakelog_service;

GRANT SELECT,INSERT ON TABLE lakelog.timeline_end TO lakelog_service;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE lakelog.token TO lakelog_service;

GRANT SELECT,INSERT,UPDATE ON TABLE lakelog.topic TO lakelog_service;

GRANT SELECT,INSERT,DELETE ON TABLE lakelog.topic_schema TO lakelog_service;

GRANT SELECT,DELETE ON TABLE lakelog.unslotted TO lakelog_service;
