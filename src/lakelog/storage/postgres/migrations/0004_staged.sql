-- Staged messages: stored, but not yet in the log. One decision names the attempts whose messages are promoted into the log,
-- partition by partition, in repeatable steps.

-- --------------------------------------------------------------------------------------------------------------- catalog

-- The first writer wins. The attempts are cleared when everything is promoted; their hash identifies the winner. `writer`
-- and `number` are the two parts of a write id such as query/17. The newest decision of each writer is never trimmed.
create table lakelog.decision (
    incarnation bigint not null,
    write_id text not null,
    writer text not null,
    number bigint not null,
    attempts text[] not null,
    attempts_hash bytea not null,
    count bigint not null,
    decided_at timestamptz not null default clock_timestamp(),
    finished_at timestamptz,
    primary key (incarnation, write_id)
);
create index decision_by_writer on lakelog.decision (incarnation, writer, number);

-- ------------------------------------------------------------------------------------------------------- partition store

-- The payload of a staged batch is in its roll's hot table under the pid -slot, which no reader requests. Promoting it
-- within the same roll is an update that leaves the payload in place, so the payload is written once.
create table lakelog.staged (
    pid bigint not null,
    write_id text not null,
    attempt text not null,
    number integer not null,
    count integer not null,
    bytes bigint not null,
    epoch integer not null,
    roll integer not null,
    slot bigint not null,
    staged_at timestamptz not null default clock_timestamp(),
    primary key (pid, write_id, attempt, number)
);
create index staged_by_roll on lakelog.staged (roll);
create sequence lakelog.staged_slot;

-- Records that a write is in a partition's log: a second promotion, or a batch staged again too late, adds nothing.
create table lakelog.promoted (
    pid bigint not null,
    write_id text not null,
    base_offset bigint not null,
    count bigint not null,
    at timestamptz not null,
    primary key (pid, write_id)
);
create index promoted_by_time on lakelog.promoted using brin (at) with (autosummarize = on);

-- ------------------------------------------------------------------------------------------------------------- functions

-- Moves the batches that the attempts staged for the partition into its log, in the order of the attempts and of the batch
-- numbers, and deletes what other attempts staged for this write. Writes one head row under one short lock.
-- status: 0 done (now or before; a null base means that nothing was staged), 1 missing, 2 sealed, 3 deleted.
create function lakelog.promote(
    p_pid bigint, p_write text, p_attempts text[],
    out status smallint, out base bigint, out count bigint, out appended_at timestamptz
)
    language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_head lakelog.head;
    v_count bigint;
    v_bytes bigint;
    v_roll integer;
begin
    perform pg_advisory_xact_lock(lakelog.lock_key(p_pid));
    -- A separate statement: a snapshot from before the lock would miss the newest head.
    select * into v_head from lakelog.head h where h.pid = p_pid order by h.version desc limit 1;
    status := case when v_head.pid is null then 1 when v_head.state = 2 then 3 else v_head.state * 2 end;
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
        base := v_head.next_offset;
        count := v_count;
        appended_at := greatest(v_head.appended_at, clock_timestamp());
        insert into lakelog.promoted (pid, write_id, base_offset, count, at)
        values (p_pid, p_write, base, v_count, appended_at);
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

-- Promotes the batches of one roll's hot table. Batches staged before the last roll are copied into the active one, which
-- holds all of a partition's newest offsets. They get the head's epoch: epochs never fall within a partition.
create function lakelog.promote_roll(
    p_head lakelog.head, p_roll integer, p_write text, p_attempts text[], p_at timestamptz
) returns void
    language plpgsql
as $$
declare
    v_placed text :=
        'select s.slot, s.roll, s.count, sum(s.count) over w as last, sum(s.bytes) over w as bytes '
        'from lakelog.staged s join unnest($3::text[]) with ordinality as a (attempt, part) on a.attempt = s.attempt '
        'where s.pid = $1 and s.write_id = $2 window w as (order by a.part, s.number)';
begin
    if p_roll = p_head.roll then
        execute format(
            'update lakelog.%I h set pid = $1, end_offset = $4 + p.last, bytes_end = $5 + p.bytes, appended_at = $6, epoch = $7 '
            'from (%s) p where h.pid = -p.slot and p.roll = $8', 'hot_' || p_roll, v_placed
        ) using p_head.pid, p_write, p_attempts, p_head.next_offset, p_head.total_bytes, p_at, p_head.epoch, p_roll;
    else
        execute format(
            'insert into lakelog.%I (pid, end_offset, count, bytes_end, appended_at, epoch, format, payload) '
            'select $1, $4 + p.last, h.count, $5 + p.bytes, $6, $7, h.format, h.payload '
            'from (%s) p join lakelog.%I h on h.pid = -p.slot where p.roll = $8',
            'hot_' || p_head.roll, v_placed, 'hot_' || p_roll
        ) using p_head.pid, p_write, p_attempts, p_head.next_offset, p_head.total_bytes, p_at, p_head.epoch, p_roll;
    end if;
end
$$;

-- Deletes the batches that are still staged for a write in a partition, with their payloads.
create function lakelog.staged_remove(p_pid bigint, p_write text) returns void
    language plpgsql
as $$
declare
    v_roll integer;
begin
    for v_roll in select distinct s.roll from lakelog.staged s where s.pid = p_pid and s.write_id = p_write loop
        execute format(
            'delete from lakelog.%I h using lakelog.staged s '
            'where s.pid = $1 and s.write_id = $2 and s.roll = $3 and h.pid = -s.slot', 'hot_' || v_roll
        ) using p_pid, p_write, v_roll;
    end loop;
    delete from lakelog.staged s where s.pid = p_pid and s.write_id = p_write;
end
$$;

-- Drops the hot table if everything in it is retired and nothing is staged there. Checks again under the lock, because a
-- transaction that stages holds the table until its rows are visible. Gives up after 100 ms if the table is being read.
create function lakelog.roll_drop(p_roll integer, p_grace interval) returns boolean
    language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    if not lakelog.roll_is_retired(p_roll, p_grace) or exists (select from lakelog.staged s where s.roll = p_roll) then
        return false;
    end if;
    perform set_config('lock_timeout', '100ms', true);
    execute format('lock table lakelog.%I in access exclusive mode', 'hot_' || p_roll);
    if not lakelog.roll_is_retired(p_roll, p_grace) or exists (select from lakelog.staged s where s.roll = p_roll) then
        return false;
    end if;
    execute format('drop table lakelog.%I', 'hot_' || p_roll);
    delete from lakelog.span where roll = p_roll;
    delete from lakelog.roll where roll = p_roll;
    return true;
exception
    when lock_not_available or undefined_table then
        return false;
end
$$;

-- ---------------------------------------------------------------------------------------------------------------- rights

grant select, insert, update, delete on lakelog.decision to lakelog_service;
grant select, insert on lakelog.staged to lakelog_service;
grant select, delete on lakelog.promoted to lakelog_service;
grant usage on sequence lakelog.staged_slot to lakelog_service;
revoke all on all functions in schema lakelog from public;
grant execute on all functions in schema lakelog to lakelog_service;
