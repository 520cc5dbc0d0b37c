-- The form of `lakelog.append` for one batch of one partition that a producer numbered: the append of a message that a
-- client publishes alone, which numbers what it sends so that a retry is safe. The verdict on the number is the same as in
-- the general form, which takes twice as long.
create function lakelog.append(
        p_roll integer, p_pid bigint, p_epoch integer, p_count integer, p_bytes bigint, p_producer bytea, p_sequence bigint)
    returns setof lakelog.append_answer
    language plpgsql
as $$
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

revoke all on function lakelog.append(integer, bigint, integer, integer, bigint, bytea, bigint) from public;
grant execute on function lakelog.append(integer, bigint, integer, integer, bigint, bytea, bigint) to lakelog_service;
