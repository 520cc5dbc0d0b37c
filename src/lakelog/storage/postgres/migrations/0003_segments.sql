-- Cold segments: files in an object store that hold whole ranges of a partition. A row counts for readers once verified.

create table lakelog.segment (
    pid bigint not null,
    end_offset bigint not null,
    first_offset bigint not null,
    path text not null,
    bytes bigint not null,
    file_hash text not null,
    content_hash text not null,
    first_at timestamptz not null,
    last_at timestamptz not null,
    epoch integer not null,
    bytes_end bigint not null,
    registered_at timestamptz not null default clock_timestamp(),
    verified_at timestamptz,
    -- Keyed by the end, like the hot tables: only the first row after an offset can hold it.
    primary key (pid, end_offset),
    check (first_offset < end_offset)
);
create unique index segment_by_path on lakelog.segment (path);
create index segment_unverified on lakelog.segment (pid, end_offset) where verified_at is null;

-- Catalog: files that no cell has registered, and when a sweep first saw them.
create table lakelog.orphan (
    path text primary key,
    first_seen_at timestamptz not null default clock_timestamp()
);

-- Returns the hot batch that holds an offset, without its payload. No row means that its hot table was dropped, or that the
-- offset is not in the log.
create function lakelog.hot_batch_at(p_pid bigint, p_offset bigint)
    returns table (end_offset bigint, count integer, bytes_start bigint, bytes_end bigint, appended_at timestamptz, epoch integer)
    language plpgsql stable
as $$
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
$$;

-- Returns the first offset from which on every batch was appended at p_time or later (or begins at p_bytes or later).
-- A segment counts as a whole: an answer inside a segment is its first offset. Times and sizes only rise within a
-- partition, so a binary search over the primary key needs no index of its own.
create function lakelog.offset_search(p_pid bigint, p_time timestamptz, p_max_bytes bigint) returns bigint
    language plpgsql stable
as $$
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

-- Registers files for exact ranges, contiguous from the log start on and up to the end of a hot batch.
-- status: 0 registered, 1 known, 2 taken; the reason is a code that the caller translates.
create function lakelog.segments_register(
    p_pids bigint[], p_firsts bigint[], p_ends bigint[], p_paths text[], p_bytes bigint[], p_file_hashes text[],
    p_content_hashes text[], p_first_ats timestamptz[], p_last_ats timestamptz[], p_epochs integer[]
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
                             p_last_ats, p_epochs)
            with ordinality as u (pid, first, "end", path, bytes, file_hash, content_hash, first_at, last_at, epoch, number)
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
                                         last_at, epoch, bytes_end)
            values (v_new.pid, v_new.first, v_new."end", v_new.path, v_new.bytes, v_new.file_hash, v_new.content_hash,
                    v_new.first_at, v_new.last_at, v_new.epoch, v_batch.bytes_end);
        end if;
        return next;
    end loop;
end
$$;

-- Returns the end of the registered segments that cover a partition without a gap from the log start on.
create function lakelog.tiered_end(p_pid bigint, p_log_start bigint) returns bigint
    language sql stable
as $$
    select coalesce(case when min(first_offset) <= p_log_start then min(end_offset) filter (where is_last) end, p_log_start)
    from (
        select first_offset, end_offset,
               lead(first_offset) over (order by end_offset) is distinct from end_offset as is_last
        from lakelog.segment where pid = p_pid and end_offset > p_log_start
    ) s
$$;

-- Returns ranges of hot batches that may become segments, each of about p_segment_bytes. Batches are whole except below the
-- log start. A remainder is returned only if it has p_min_bytes or its first batch is older than p_min_age. Sizes only rise
-- within a partition, so ends are found by binary search.
create function lakelog.tierable(
    p_pids bigint[], p_segment_bytes bigint, p_min_bytes bigint, p_min_age interval, p_limit integer
) returns table (pid bigint, first_offset bigint, end_offset bigint, bytes bigint)
    language plpgsql stable
as $$
declare
    v_head record;
    v_batch record;
    v_end record;
    v_limit bigint;
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
            if v_end.bytes_end - v_batch.bytes_start < p_segment_bytes then
                exit when v_limit = v_head.next_offset and v_end.bytes_end - v_batch.bytes_start < p_min_bytes
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

-- Returns whether every batch in the roll's hot table is below its partition's log start or in segments that were verified
-- at least p_grace ago, and no batch can be added. Segments do not overlap, so their shares of a span add up.
create function lakelog.roll_is_retired(p_roll integer, p_grace interval) returns boolean
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
          and (h.roll = p_roll or (w.low < w.high and w.high - w.low > (
              select coalesce(sum(least(g.end_offset, w.high) - greatest(g.first_offset, w.low)), 0)
              from lakelog.segment g
              where g.pid = s.pid and g.end_offset > w.low and g.first_offset < w.high
                and g.verified_at <= clock_timestamp() - p_grace)))
    )
$$;

-- Deletes the rows of segments that are wholly below the log start or of a deleted topic. Their files become orphans.
create function lakelog.segments_trim() returns bigint
    language plpgsql
as $$
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

grant select, insert, update, delete on lakelog.segment, lakelog.orphan to lakelog_service;
revoke all on all functions in schema lakelog from public;
grant execute on all functions in schema lakelog to lakelog_service;
