-- Segments know the first offsets of their row groups, so that readers divide a file between row groups without opening it.
-- Segments do not cross midnight in UTC, so that a reader of one day opens the files of that day only.

alter table lakelog.segment add column groups bigint[] not null default '{}';

drop function lakelog.segments_register;

-- Registers files for exact ranges, contiguous from the log start on and up to the end of a hot batch.
-- status: 0 registered, 1 known, 2 taken; the reason is a code that the caller translates.
create function lakelog.segments_register(
    p_pids bigint[], p_firsts bigint[], p_ends bigint[], p_paths text[], p_bytes bigint[], p_file_hashes text[],
    p_content_hashes text[], p_first_ats timestamptz[], p_last_ats timestamptz[], p_epochs integer[],
    p_groups text[] default null
) returns table (part integer, status smallint, reason text)
    language plpgsql
as $$
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

-- Returns ranges of hot batches that may become segments, each of about p_segment_bytes. Batches are whole except below the
-- log start. A remainder is returned only if it has p_min_bytes or its first batch is older than p_min_age. Sizes only rise
-- within a partition, so ends are found by binary search. A range ends where a day ends in UTC; the rest of a day that was
-- followed by messages of a later day is returned, however small.
create or replace function lakelog.tierable(
    p_pids bigint[], p_segment_bytes bigint, p_min_bytes bigint, p_min_age interval, p_limit integer
) returns table (pid bigint, first_offset bigint, end_offset bigint, bytes bigint)
    language plpgsql stable
as $$
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

revoke all on function lakelog.segments_register from public;
grant execute on function lakelog.segments_register to lakelog_service;
