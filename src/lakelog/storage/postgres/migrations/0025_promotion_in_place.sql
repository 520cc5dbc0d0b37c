-- A promotion leaves every payload where it was staged, also in the hot tables of earlier rolls. Its time under the
-- partition's lock depends on the number of batches, and no longer on their bytes.

-- Moves the batches that the attempts staged for the partition into its log, in the order of the attempts and of the batch
-- numbers. Writes one head row, and a span for each sequence of batches in one hot table, under one short lock. The caller
-- deletes what is still staged with `staged_discard`.
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

-- Writes the spans of a promotion, and returns the roll of the last batch. A span of the head's roll continues only if the
-- roll is active: the batches of an older roll may have been moved to a kept table, with their span.
create function lakelog.promote_spans(p_head lakelog.head, p_write text, p_attempts text[]) returns integer
    language plpgsql
as $$
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

-- Promotes the batches of one roll's hot table. They get the head's epoch: epochs never fall within a partition.
create or replace function lakelog.promote_roll(
    p_head lakelog.head, p_roll integer, p_write text, p_attempts text[], p_at timestamptz
) returns void
    language plpgsql
as $$
begin
    execute format(
        'update lakelog.%I h set pid = $1, end_offset = $4 + p.last, bytes_end = $5 + p.bytes, appended_at = $6, epoch = $7 '
        'from (select s.slot, s.roll, sum(s.count) over w as last, sum(s.bytes) over w as bytes '
        'from lakelog.staged s join unnest($3::text[]) with ordinality as a (attempt, part) on a.attempt = s.attempt '
        'where s.pid = $1 and s.write_id = $2 window w as (order by a.part, s.number)) p '
        'where h.pid = -p.slot and p.roll = $8', 'hot_' || p_roll
    ) using p_head.pid, p_write, p_attempts, p_head.next_offset, p_head.total_bytes, p_at, p_head.epoch, p_roll;
end
$$;

-- Deletes about p_bytes of the batches that are still staged for a write in a partition, with their payloads, and returns
-- how many batches. For a write that is promoted, abandoned, or of a deleted partition.
create function lakelog.staged_discard(p_pid bigint, p_write text, p_bytes bigint) returns bigint
    language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
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
$$;

drop function lakelog.staged_remove;
revoke all on function lakelog.promote_spans, lakelog.staged_discard from public;
grant execute on function lakelog.staged_discard to lakelog_service;
