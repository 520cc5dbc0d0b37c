-- The form of `lakelog.append` for one batch of one partition, without a producer's number and without idempotency keys: the
-- append of a message that is published alone. Its status and its lock are the same. The general form takes half as much time
-- again, because each of its queries is prepared for any number of partitions.
create function lakelog.append(p_roll integer, p_pid bigint, p_epoch integer, p_count integer, p_bytes bigint)
    returns lakelog.append_answer
    language plpgsql
as $$
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

revoke all on function lakelog.append(integer, bigint, integer, integer, bigint) from public;
grant execute on function lakelog.append(integer, bigint, integer, integer, bigint) to lakelog_service;
