-- Background work runs in one process per cell, in statements of bounded size, so that it also succeeds after hours without
-- a server. Functions without a limit stay for servers of the version before.

-- The process that does a task of this cell, until its lease ends.
create table lakelog.runner (
    task text primary key,
    runner text not null,
    until timestamptz not null
) with (fillfactor = 50);

create function lakelog.runner_elect(p_task text, p_runner text, p_lease interval) returns boolean
    language plpgsql
as $$
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

-- Returns the partition that ends the next part of a walk over all partitions; null for the last part.
create function lakelog.partitions_walk(p_after bigint, p_partitions integer) returns bigint
    language sql stable
    return (select p.pid from lakelog.partition p where p.pid > p_after order by p.pid offset p_partitions - 1 limit 1);

-- Deletes head rows of some partitions behind p_after, except the newest, at most p_rows of each. Returns where to continue,
-- null at the end, and the number of rows.
create function lakelog.heads_trim_some(
    p_after bigint, p_partitions integer, p_rows bigint, out next_after bigint, out trimmed bigint
)
    language plpgsql
as $$
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

-- Keeps the last five batches of a producer per partition, and nothing of a producer that was inactive for p_memory, in some
-- partitions behind p_after. Deletes at most p_rows.
create function lakelog.producers_trim_some(
    p_memory interval, p_after bigint, p_partitions integer, p_rows bigint, out next_after bigint, out trimmed bigint
)
    language plpgsql
as $$
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

-- Deletes the rows of segments that are wholly below the log start or of a deleted topic, in some partitions behind p_after.
-- Their files become orphans.
create function lakelog.segments_trim_some(
    p_after bigint, p_partitions integer, out next_after bigint, out trimmed bigint
)
    language plpgsql
as $$
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

-- Deletes up to about p_limit rows of up to p_journals journals before (p_group, p_pid), and returns how many and where to
-- continue; a null group at the end. A null number means that another caller is at work, and nothing was done.
create function lakelog.journals_trim_some(
    p_grace interval, p_dropped bigint[], p_limit bigint, p_journals integer, p_group bigint, p_pid bigint,
    out trimmed bigint, out next_group bigint, out next_pid bigint
)
    language plpgsql
as $$
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

grant select, insert, update, delete on lakelog.runner to lakelog_service;
revoke all on function lakelog.runner_elect, lakelog.partitions_walk, lakelog.heads_trim_some, lakelog.producers_trim_some,
    lakelog.segments_trim_some, lakelog.journals_trim_some from public;
grant execute on function lakelog.runner_elect, lakelog.partitions_walk, lakelog.heads_trim_some,
    lakelog.producers_trim_some, lakelog.segments_trim_some, lakelog.journals_trim_some to lakelog_service;
