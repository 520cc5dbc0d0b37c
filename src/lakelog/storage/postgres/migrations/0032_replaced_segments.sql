-- Compaction replaces registered segments by others that hold the same messages.

-- Replaces verified segments of a partition by segments of exactly the same range, all or none. The caller has read the new
-- files back, and checks that both lists have no gaps and the same bounds.
-- status: 0 replaced, 1 known, 2 taken; the reason is a code that the caller translates.
create function lakelog.segments_replace(
    p_pid bigint, p_old_firsts bigint[], p_old_ends bigint[], p_old_paths text[], p_old_content_hashes text[],
    p_firsts bigint[], p_ends bigint[], p_paths text[], p_bytes bigint[], p_file_hashes text[], p_content_hashes text[],
    p_first_ats timestamptz[], p_last_ats timestamptz[], p_epochs integer[], p_groups text[],
    out status smallint, out reason text
)
    language plpgsql
as $$
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

revoke all on function lakelog.segments_replace from public;
grant execute on function lakelog.segments_replace to lakelog_service;
