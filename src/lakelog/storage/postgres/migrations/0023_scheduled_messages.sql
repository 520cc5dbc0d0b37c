-- Delayed messages wait in the cell of their partition until they are due. They are then appended and removed in one
-- statement, so that each is delivered once, and so that of a cancellation and a delivery one happens.

-- A delayed message. `mark` identifies it in its partition: the hash of its idempotency key, or bytes that the client chose.
-- After the delivery, the partition remembers the mark for `memory`, like an idempotency key. Rows that are cancelled or
-- refused are kept for some time, so that a repeated call gets the same answer.
create table lakelog.scheduled (
    pid bigint not null,
    mark bytea not null,
    state smallint not null default 0, -- 0: waiting, 1: cancelled, 2: refused when due
    due_at timestamptz not null,
    scheduled_at timestamptz not null,
    number integer not null, -- the place in the call, which is the order of messages that are due at the same time
    ended_at timestamptz,
    memory interval not null,
    expires_ms bigint, -- from the delivery on
    payload bytea not null, -- a batch with one message
    primary key (pid, mark)
) with (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);
alter table lakelog.scheduled alter mark set storage plain;

create index scheduled_due on lakelog.scheduled (due_at, scheduled_at, number) where state = 0;
create index scheduled_listed on lakelog.scheduled (pid, due_at, mark) where state = 0;
create index scheduled_ended on lakelog.scheduled (ended_at) where state > 0;

-- Stores messages, each with a delay or a time, and returns a status for each: 0 scheduled, 1 to 3 refused as by
-- lakelog.append, 4 an earlier call scheduled it, 5 it is in the log already, 6 its time has passed and nothing is written,
-- 7 its time is later than p_longest from now. An insert that meets an uncommitted row with the same mark waits for it.
create function lakelog.schedule(
    p_longest interval, s_pids bigint[], s_epochs integer[], s_marks bytea[], s_delays interval[], s_times timestamptz[],
    s_memories interval[], s_expires bigint[], s_payloads bytea[]
) returns table (part integer, status smallint, due_at timestamptz, base_offset bigint)
    language plpgsql set plan_cache_mode = force_generic_plan
as $$
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

-- Appends messages that are due, like lakelog.append, and removes them from the scheduled messages. The keys are their
-- marks. Epochs are those of the partitions, because the partition was chosen when the message was scheduled. If one of the
-- messages is not waiting or not due, it has status 6 and nothing is written. A message whose mark is in the log already
-- (the same idempotency key was published without a delay) is removed.
create function lakelog.deliver(
    p_roll integer, p_pids bigint[], p_epochs integer[], p_counts integer[], p_bytes bigint[],
    q_pids bigint[], q_producers bytea[], q_sequences bigint[], q_starts integer[], q_counts integer[],
    k_pids bigint[], k_hashes bytea[], k_starts integer[], k_memories interval[]
) returns setof lakelog.append_answer
    language plpgsql set plan_cache_mode = force_generic_plan
as $$
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

grant select, insert, update, delete on lakelog.scheduled to lakelog_service;
revoke all on function lakelog.schedule, lakelog.deliver from public;
grant execute on function lakelog.schedule, lakelog.deliver to lakelog_service;
