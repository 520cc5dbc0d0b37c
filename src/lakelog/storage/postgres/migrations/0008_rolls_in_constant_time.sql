-- A roll creates one table and one row, for any number of partitions. The first append of a partition to a new hot table
-- writes its span and the new number into its head. Partitions of deleted topics are removed after a while.

-- The number in a head is the roll of its last append; 0 before the first one.

-- Deleted partitions whose rows still exist, in the order in which they are removed.
create table lakelog.closed_partition (
    pid bigint primary key,
    closed_at timestamptz not null default clock_timestamp()
);
create index closed_partition_by_time on lakelog.closed_partition (closed_at, pid);
insert into lakelog.closed_partition (pid)
select p.pid from lakelog.partition p
cross join lateral (select x.state from lakelog.head x where x.pid = p.pid order by x.version desc limit 1) h
where h.state = 2;

-- Topics whose partitions were removed. A late creator must not create them again: one row per topic remains.
create table lakelog.closed_topic (
    incarnation bigint primary key
);

-- Allocates offsets. The caller's INSERT into the roll's hot table joins on status 0, in the same statement. The statement
-- locks the hot table before this function runs, so the table is not dropped even if the next roll has begun.
-- status: 0 appended, 1 missing, 2 closed, 3 epoch, 4 parts (with one more row per rejected part), 5 another roll is active.
create or replace function lakelog.append(
    p_roll integer, p_pids bigint[], p_epochs integer[], p_counts integer[], p_bytes bigint[],
    q_pids bigint[], q_producers bytea[], q_sequences bigint[], q_starts integer[], q_counts integer[],
    k_pids bigint[], k_hashes bytea[], k_starts integer[]
) returns setof lakelog.append_answer
    language plpgsql
as $$
declare
    v_bad bigint[] := '{}';
    v_row lakelog.append_answer;
    v_run record;
    v_seen record;
    v_accepted bigint;
    v_verdict smallint;
begin
    perform lakelog.lock_partitions(p_pids);

    if cardinality(q_pids) > 0 then
        for v_run in
            select q.*, coalesce(last.sequence, -1) as last, known.base_offset
            from unnest(q_pids, q_producers, q_sequences) with ordinality as q (pid, producer, sequence, part)
            left join lateral (
                select b.sequence from lakelog.producer_batch b
                where b.pid = q.pid and b.producer = q.producer
                order by b.sequence desc limit 1
            ) last on true
            left join lakelog.producer_batch known
                on known.pid = q.pid and known.producer = q.producer and known.sequence = q.sequence
            order by q.pid, q.producer, q.part
        loop
            if v_seen is distinct from (v_run.pid, v_run.producer) then
                v_seen := (v_run.pid, v_run.producer);
                v_accepted := v_run.last;
            end if;
            v_verdict := case
                when v_run.base_offset is not null and v_run.sequence > v_run.last - 5 then 1
                when v_accepted = -1 and v_run.sequence <> 0 then 2
                when v_run.sequence > v_run.last and v_run.sequence <= v_accepted then 1
                when v_run.sequence <> v_accepted + 1 then 3
            end;
            if v_verdict is null then
                v_accepted := v_run.sequence;
            else
                v_bad := v_bad || v_run.pid;
                return next (v_run.pid, 4, null, null, null, null, null, false, v_run.part - 1, v_verdict,
                             case when v_verdict = 1 then v_run.base_offset end)::lakelog.append_answer;
            end if;
        end loop;
    end if;

    if cardinality(k_pids) > 0 then
        for v_row in
            select k.pid, 4::smallint, null, null, null, null, null, true, k.part::integer - 1, 1::smallint, known.base_offset
            from (
                select u.*, row_number() over (partition by u.pid, u.key_hash order by u.part) as repeat
                from unnest(k_pids, k_hashes) with ordinality as u (pid, key_hash, part)
            ) k
            left join lakelog.keyed_append known on known.pid = k.pid and known.key_hash = k.key_hash
            where known.pid is not null or k.repeat > 1
        loop
            v_bad := v_bad || v_row.pid;
            return next v_row;
        end loop;
    end if;

    return query
    with newest as materialized (
        select a.pid, a.count, a.bytes, h.version, h.next_offset, h.log_start, h.total_bytes, h.roll, greatest(h.epoch, a.epoch) as epoch,
               h.state, greatest(h.appended_at, clock_timestamp()) as at, active.roll as active,
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
        select n.pid, n.version + 1, n.next_offset + n.count, n.log_start, n.total_bytes + n.bytes, n.at, n.active, n.epoch, n.state
        from newest n where n.status = 0
    ), spans as (
        -- The partition's first append to this hot table.
        insert into lakelog.span (pid, first_offset, roll)
        select n.pid, n.next_offset, n.active from newest n where n.status = 0 and n.roll <> n.active
        on conflict (pid, first_offset) do update set roll = excluded.roll
    ), producers as (
        insert into lakelog.producer_batch (pid, producer, sequence, count, base_offset, at)
        select q.pid, q.producer, q.sequence, q.count, n.next_offset + q.start, n.at
        from unnest(q_pids, q_producers, q_sequences, q_starts, q_counts) as q (pid, producer, sequence, start, count)
        join newest n on n.pid = q.pid and n.status = 0
    ), keys as (
        insert into lakelog.keyed_append (pid, key_hash, base_offset, at)
        select k.pid, k.key_hash, n.next_offset + k.start, n.at
        from unnest(k_pids, k_hashes, k_starts) as k (pid, key_hash, start)
        join newest n on n.pid = k.pid and n.status = 0
    )
    select n.pid, n.status, n.next_offset, n.total_bytes, n.at, n.epoch, n.active,
           null::boolean, null::integer, null::smallint, null::bigint
    from newest n;
end
$$;

create or replace function lakelog.heads_create(p_pids bigint[], p_epoch integer) returns void
    language plpgsql
as $$
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

-- Appends a head row that changes the state or the epoch only.
create or replace function lakelog.heads_change(p_pids bigint[], p_state smallint, p_epoch integer) returns void
    language plpgsql
as $$
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

-- Creates a new hot table, unless another caller did so since p_expected was read. Hot tables have no common parent, so
-- dropping one waits only for its own readers. Publishers wait for nothing: those that named the old table while this
-- committed are still in it, and roll_drop waits for them. Autovacuum then freezes the old table once: every row was
-- inserted since the last vacuum, and none is inserted after this one.
create or replace function lakelog.roll_begin(p_expected integer) returns integer
    language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_roll integer;
    v_table text;
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
    v_roll := v_roll + 1;
    v_table := 'hot_' || v_roll;
    execute format(
        'create table lakelog.%I ('
        'pid bigint not null, end_offset bigint not null, count integer not null, bytes_end bigint not null, '
        'appended_at timestamptz not null, epoch integer not null, format smallint not null default 1, '
        'payload bytea not null, primary key (pid, end_offset)) '
        'with (autovacuum_enabled = off, toast.autovacuum_enabled = off)', v_table);
    execute format('alter table lakelog.%I alter payload set storage external', v_table);
    execute format('grant select, insert on lakelog.%I to lakelog_service', v_table);
    insert into lakelog.roll (roll) values (v_roll);
    return v_roll;
end
$$;

-- Returns whether every batch in the roll's hot table is below its partition's log start or in segments that were verified
-- at least p_grace ago, and no batch can be added. Segments do not overlap, so their shares of a span add up. A partition
-- without a head was removed.
create or replace function lakelog.roll_is_retired(p_roll integer, p_grace interval) returns boolean
    language sql stable
as $$
    select p_roll < (select max(roll) from lakelog.roll) and not exists (
        select 1
        from lakelog.span s
        cross join lateral (select * from lakelog.head x where x.pid = s.pid order by x.version desc limit 1) h
        cross join lateral (
            select greatest(h.log_start, s.first_offset) as low, least(h.next_offset, (
                select n.first_offset from lakelog.span n
                where n.pid = s.pid and n.first_offset > s.first_offset order by n.first_offset limit 1)) as high
        ) w
        where s.roll = p_roll
          and (w.low < w.high and w.high - w.low > (
              select coalesce(sum(least(g.end_offset, w.high) - greatest(g.first_offset, w.low)), 0)
              from lakelog.segment g
              where g.pid = s.pid and g.end_offset > w.low and g.first_offset < w.high
                and g.verified_at <= clock_timestamp() - p_grace))
    )
$$;

-- Moves the batches that the attempts staged for the partition into its log, in the order of the attempts and of the batch
-- numbers, and deletes what other attempts staged for this write. Writes one head row under one short lock.
-- status: 0 done (now or before; a null base means that nothing was staged), 1 missing, 2 sealed, 3 deleted.
create or replace function lakelog.promote(
    p_pid bigint, p_write text, p_attempts text[],
    out status smallint, out base bigint, out count bigint, out appended_at timestamptz
)
    language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_head lakelog.head;
    v_count bigint;
    v_bytes bigint;
    v_active integer;
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
    if base is null and status = 0 then
        select sum(s.count), sum(s.bytes) into v_count, v_bytes
        from lakelog.staged s where s.pid = p_pid and s.write_id = p_write and s.attempt = any (p_attempts);
    end if;
    if v_count > 0 then
        select max(r.roll) into strict v_active from lakelog.roll r;
        base := v_head.next_offset;
        count := v_count;
        appended_at := greatest(v_head.appended_at, clock_timestamp());
        insert into lakelog.promoted (pid, write_id, base_offset, count, at)
        values (p_pid, p_write, base, v_count, appended_at);
        if v_head.roll <> v_active then
            insert into lakelog.span (pid, first_offset, roll) values (p_pid, base, v_active)
            on conflict (pid, first_offset) do update set roll = excluded.roll;
            v_head.roll := v_active;
        end if;
        for v_roll in
            select distinct s.roll from lakelog.staged s
            where s.pid = p_pid and s.write_id = p_write and s.attempt = any (p_attempts)
        loop
            perform lakelog.promote_roll(v_head, v_roll, p_write, p_attempts, appended_at);
        end loop;
        insert into lakelog.head (pid, version, next_offset, log_start, total_bytes, appended_at, roll, epoch, state)
        values (p_pid, v_head.version + 1, v_head.next_offset + v_count, v_head.log_start, v_head.total_bytes + v_bytes,
                promote.appended_at, v_head.roll, v_head.epoch, v_head.state);
    end if;
    perform lakelog.staged_remove(p_pid, p_write);
end
$$;

-- Removes up to p_limit partitions that were deleted at least p_grace ago, oldest first, and returns how many. Those with
-- segments wait until their segments are trimmed.
create function lakelog.partitions_remove(p_grace interval, p_limit integer) returns bigint
    language plpgsql
as $$
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

-- Deletes up to about p_limit rows and returns how many. A caller that finds another one at work returns at once.
create or replace function lakelog.journals_trim(p_grace interval, p_dropped bigint[], p_limit bigint) returns bigint
    language plpgsql
as $$
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

grant select, insert, delete on lakelog.closed_partition to lakelog_service;
grant select, insert on lakelog.closed_topic to lakelog_service;
grant update on lakelog.span to lakelog_service;
grant delete on lakelog.partition to lakelog_service;
revoke all on function lakelog.partitions_remove from public;
grant execute on function lakelog.partitions_remove to lakelog_service;
