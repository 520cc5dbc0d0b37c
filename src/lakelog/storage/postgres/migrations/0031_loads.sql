-- Loads: history that goes into a partition as verified segments, without hot batches.

-- The decision about the part of a load that goes to one partition. The first one wins, so that a load that runs again adds
-- nothing. The row is deleted with its partition.
create table lakelog.loaded (
    pid bigint not null references lakelog.partition (pid) on delete cascade,
    name text not null,
    first_offset bigint not null,
    end_offset bigint not null,
    fingerprint text not null,
    loaded_at timestamptz not null default clock_timestamp(),
    primary key (pid, name),
    check (first_offset <= end_offset)
);

-- Appends the segments of a load to partitions: the decision, the segments, verified, and a head row for each partition.
-- The caller has read the files back, and has checked that the segments of a partition follow each other from its first
-- offset. A partition without segments gets only the decision. Times of messages do not fall within the readable log.
-- status: 0 loaded, 1 known (the earlier decision is returned), 2 moved (a message was published since; base is the next
-- offset), 3 refused, with a code as the reason that the caller translates.
create function lakelog.segments_load(
    p_name text, p_pids bigint[], p_firsts bigint[], p_fingerprints text[],
    s_pids bigint[], s_firsts bigint[], s_ends bigint[], s_paths text[], s_bytes bigint[], s_file_hashes text[],
    s_content_hashes text[], s_first_ats timestamptz[], s_last_ats timestamptz[], s_epochs integer[], s_groups text[]
) returns table (part integer, status smallint, reason text, base bigint, stop bigint, print text)
    language plpgsql
as $$
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

grant select, insert, update, delete on lakelog.loaded to lakelog_service;
revoke all on function lakelog.segments_load from public;
grant execute on function lakelog.segments_load to lakelog_service;
