-- The catalog, and the partition store of a cell. Every database gets both; only the default cell's catalog is used.
-- The service's role owns nothing: tables and functions belong to the role that migrates.

do $$
begin
    -- Check first: without the right to create roles, PostgreSQL refuses even if the role exists.
    if not exists (select from pg_roles where rolname = 'lakelog_service') then
        create role lakelog_service nologin;
    end if;
exception
    when duplicate_object or unique_violation then null;
    when insufficient_privilege then
        raise exception 'The role lakelog_service is missing and this user may not create it.'
            using hint = 'Have an administrator run: CREATE ROLE lakelog_service NOLOGIN';
end
$$;

-- ---------------------------------------------------------------------------------------------------------------- catalog

-- Identifies the installation and the cell, so that a wrong URL is detected before anything is written.
create table lakelog.installation (
    only_row boolean primary key default true check (only_row),
    installation_id uuid not null default gen_random_uuid(),
    cell smallint not null default 0,
    feature_level integer not null default 1
);

create table lakelog.cell (
    cell smallint generated always as identity primary key,
    name text not null unique
);

create table lakelog.environment (
    environment_id bigint generated always as identity primary key,
    project text not null,
    name text not null,
    created_at timestamptz not null default clock_timestamp(),
    unique (project, name)
);

-- An incarnation is never reused: everything that a topic owns is keyed by it. cells[n + 1] holds partition n.
create table lakelog.topic (
    incarnation bigint generated always as identity primary key,
    environment_id bigint not null references lakelog.environment,
    name text not null,
    epoch integer not null default 0,
    cells smallint[] not null,
    slot_cells smallint[] not null,
    settings jsonb not null,
    created_at timestamptz not null default clock_timestamp(),
    deleted_at timestamptz,
    closed_at timestamptz
);
create unique index topic_open on lakelog.topic (environment_id, name) where deleted_at is null;
create index topic_to_close on lakelog.topic (incarnation) where deleted_at is not null and closed_at is null;

create table lakelog.token (
    token_id text primary key,
    environment_id bigint not null references lakelog.environment,
    name text not null,
    hash bytea not null unique,
    rights text[] not null,
    created_at timestamptz not null default clock_timestamp(),
    expires_at timestamptz,
    revoked_at timestamptz
);

-- -------------------------------------------------------------------------------------------------------- partition store

create table lakelog.partition (
    pid bigint primary key,
    created_at timestamptz not null default clock_timestamp()
);

-- The journal of a partition. Its primary key makes an offset unique. The newest row is never trimmed.
create table lakelog.head (
    pid bigint not null,
    version bigint not null,
    next_offset bigint not null,
    log_start bigint not null,
    total_bytes bigint not null,
    appended_at timestamptz not null,
    roll integer not null,
    epoch integer not null,
    state smallint not null,
    format smallint not null default 1,
    primary key (pid, version)
);

create table lakelog.roll (
    roll integer primary key,
    created_at timestamptz not null default clock_timestamp()
);

-- The first offset of a partition whose batches are in a roll's hot table.
create table lakelog.span (
    pid bigint not null,
    first_offset bigint not null,
    roll integer not null,
    primary key (pid, first_offset)
);
create index span_by_roll on lakelog.span (roll);

create table lakelog.producer_batch (
    pid bigint not null,
    producer bytea not null,
    sequence bigint not null,
    count integer not null,
    base_offset bigint not null,
    at timestamptz not null,
    primary key (pid, producer, sequence)
);

-- The partition and the body hash of the message with an idempotency key. The first writer wins.
create table lakelog.reservation (
    incarnation bigint not null,
    key_hash bytea not null,
    body_hash bytea not null,
    partition integer not null,
    at timestamptz not null default clock_timestamp(),
    primary key (incarnation, key_hash)
);
create index reservation_by_time on lakelog.reservation using brin (at) with (autosummarize = on);

-- The offset at which the message with an idempotency key was appended.
create table lakelog.keyed_append (
    pid bigint not null,
    key_hash bytea not null,
    base_offset bigint not null,
    at timestamptz not null,
    primary key (pid, key_hash)
);
create index keyed_append_by_time on lakelog.keyed_append using brin (at) with (autosummarize = on);

-- ------------------------------------------------------------------------------------------------------------- functions

-- Keeps Lakelog's advisory locks apart from those of other applications in this database. 0 is the roll lock.
create function lakelog.lock_key(p_pid bigint) returns bigint
    language sql immutable parallel safe
    return 5497628094138482688 + p_pid;

-- Takes the partitions' locks in order, each in its own statement: a snapshot from before the lock would miss the newest head.
create function lakelog.lock_partitions(p_pids bigint[]) returns void
    language plpgsql
as $$
declare
    v_pid bigint;
begin
    foreach v_pid in array p_pids loop
        perform pg_advisory_xact_lock(lakelog.lock_key(v_pid));
    end loop;
end
$$;

create type lakelog.append_answer as (
    pid bigint,
    status smallint,
    base bigint,
    bytes_base bigint,
    appended_at timestamptz,
    epoch integer,
    roll integer,
    keyed boolean,
    part integer,
    verdict smallint,
    part_offset bigint
);

-- Allocates offsets. The caller's INSERT into the roll's hot table joins on status 0, in the same statement.
-- status: 0 appended, 1 missing, 2 closed, 3 epoch, 4 parts (with one more row per rejected part), 5 another roll is active.
create function lakelog.append(
    p_roll integer, p_pids bigint[], p_epochs integer[], p_counts integer[], p_bytes bigint[],
    q_pids bigint[], q_producers bytea[], q_sequences bigint[], q_starts integer[], q_counts integer[],
    k_pids bigint[], k_hashes bytea[], k_starts integer[]
) returns setof lakelog.append_answer
    language plpgsql
as $$
declare
    v_bad bigint[] := '{}';
    v_row lakelog.append_answer;
    v_run record;
    v_seen record;
    v_accepted bigint;
    v_verdict smallint;
begin
    perform lakelog.lock_partitions(p_pids);

    if cardinality(q_pids) > 0 then
        for v_run in
            select q.*, coalesce(last.sequence, -1) as last, known.base_offset
            from unnest(q_pids, q_producers, q_sequences) with ordinality as q (pid, producer, sequence, part)
            left join lateral (
                select b.sequence from lakelog.producer_batch b
                where b.pid = q.pid and b.producer = q.producer
                order by b.sequence desc limit 1
            ) last on true
            left join lakelog.producer_batch known
                on known.pid = q.pid and known.producer = q.producer and known.sequence = q.sequence
            order by q.pid, q.producer, q.part
        loop
            if v_seen is distinct from (v_run.pid, v_run.producer) then
                v_seen := (v_run.pid, v_run.producer);
                v_accepted := v_run.last;
            end if;
            v_verdict := case
                when v_run.base_offset is not null and v_run.sequence > v_run.last - 5 then 1
                when v_accepted = -1 and v_run.sequence <> 0 then 2
                when v_run.sequence > v_run.last and v_run.sequence <= v_accepted then 1
                when v_run.sequence <> v_accepted + 1 then 3
            end;
            if v_verdict is null then
                v_accepted := v_run.sequence;
            else
                v_bad := v_bad || v_run.pid;
                return next (v_run.pid, 4, null, null, null, null, null, false, v_run.part - 1, v_verdict,
                             case when v_verdict = 1 then v_run.base_offset end)::lakelog.append_answer;
            end if;
        end loop;
    end if;

    if cardinality(k_pids) > 0 then
        for v_row in
            select k.pid, 4::smallint, null, null, null, null, null, true, k.part::integer - 1, 1::smallint, known.base_offset
            from (
                select u.*, row_number() over (partition by u.pid, u.key_hash order by u.part) as repeat
                from unnest(k_pids, k_hashes) with ordinality as u (pid, key_hash, part)
            ) k
            left join lakelog.keyed_append known on known.pid = k.pid and known.key_hash = k.key_hash
            where known.pid is not null or k.repeat > 1
        loop
            v_bad := v_bad || v_row.pid;
            return next v_row;
        end loop;
    end if;

    return query
    with newest as materialized (
        select a.pid, a.count, a.bytes, h.version, h.next_offset, h.log_start, h.total_bytes, h.roll, greatest(h.epoch, a.epoch) as epoch,
               h.state, greatest(h.appended_at, clock_timestamp()) as at,
               case
                   when h.pid is null then 1
                   when h.state <> 0 then 2
                   when a.pid = any (v_bad) then 4
                   when a.epoch < h.epoch then 3
                   when h.roll <> p_roll then 5
                   else 0
               end::smallint as status
        from unnest(p_pids, p_epochs, p_counts, p_bytes) as a (pid, epoch, count, bytes)
        left join lateral (
            select * from lakelog.head x where x.pid = a.pid order by x.version desc limit 1
        ) h on true
    ), heads as (
        insert into lakelog.head (pid, version, next_offset, log_start, total_bytes, appended_at, roll, epoch, state)
        select n.pid, n.version + 1, n.next_offset + n.count, n.log_start, n.total_bytes + n.bytes, n.at, n.roll, n.epoch, n.state
        from newest n where n.status = 0
    ), producers as (
        insert into lakelog.producer_batch (pid, producer, sequence, count, base_offset, at)
        select q.pid, q.producer, q.sequence, q.count, n.next_offset + q.start, n.at
        from unnest(q_pids, q_producers, q_sequences, q_starts, q_counts) as q (pid, producer, sequence, start, count)
        join newest n on n.pid = q.pid and n.status = 0
    ), keys as (
        insert into lakelog.keyed_append (pid, key_hash, base_offset, at)
        select k.pid, k.key_hash, n.next_offset + k.start, n.at
        from unnest(k_pids, k_hashes, k_starts) as k (pid, key_hash, start)
        join newest n on n.pid = k.pid and n.status = 0
    )
    select n.pid, n.status, n.next_offset, n.total_bytes, n.at, n.epoch, n.roll,
           null::boolean, null::integer, null::smallint, null::bigint
    from newest n;
end
$$;

-- Returns the reservations that hold, in the order of the arguments. Keys are inserted in order, which prevents deadlocks.
create function lakelog.reserve(
    p_durable boolean, p_incarnations bigint[], p_key_hashes bytea[], p_body_hashes bytea[], p_partitions integer[]
) returns table (part integer, body_hash bytea, "partition" integer)
    language plpgsql
as $$
begin
    if not p_durable then
        perform set_config('synchronous_commit', 'off', true);
    end if;
    insert into lakelog.reservation (incarnation, key_hash, body_hash, partition)
    select u.incarnation, u.key_hash, u.body_hash, u.partition
    from unnest(p_incarnations, p_key_hashes, p_body_hashes, p_partitions) as u (incarnation, key_hash, body_hash, partition)
    order by 1, 2
    on conflict do nothing;
    return query
    select u.part::integer, r.body_hash, r.partition
    from unnest(p_incarnations, p_key_hashes) with ordinality as u (incarnation, key_hash, part)
    join lakelog.reservation r on r.incarnation = u.incarnation and r.key_hash = u.key_hash
    order by u.part;
end
$$;

create function lakelog.heads_create(p_pids bigint[], p_epoch integer) returns void
    language plpgsql
as $$
declare
    v_roll integer;
begin
    -- A concurrent roll would leave the new partitions in the old hot table.
    perform pg_advisory_xact_lock(lakelog.lock_key(0));
    select max(roll) into strict v_roll from lakelog.roll;
    with made as (
        insert into lakelog.partition (pid) select unnest(p_pids) order by 1 on conflict do nothing returning pid
    ), heads as (
        insert into lakelog.head (pid, version, next_offset, log_start, total_bytes, appended_at, roll, epoch, state)
        select pid, 0, 0, 0, 0, clock_timestamp(), v_roll, p_epoch, 0 from made
    )
    insert into lakelog.span (pid, first_offset, roll) select pid, 0, v_roll from made;
end
$$;

-- Appends a head row that changes the state or the epoch only.
create function lakelog.heads_change(p_pids bigint[], p_state smallint, p_epoch integer) returns void
    language plpgsql
as $$
begin
    if p_state = 2 then
        -- A create that arrives after this delete must find the heads, deleted.
        perform lakelog.heads_create(p_pids, 0);
    end if;
    perform lakelog.lock_partitions(p_pids);
    insert into lakelog.head (pid, version, next_offset, log_start, total_bytes, appended_at, roll, epoch, state)
    select h.pid, h.version + 1, h.next_offset, case when p_state = 2 then h.next_offset else h.log_start end,
           h.total_bytes, h.appended_at, h.roll, greatest(h.epoch, p_epoch), greatest(h.state, p_state)
    from unnest(p_pids) as a (pid)
    cross join lateral (select * from lakelog.head x where x.pid = a.pid order by x.version desc limit 1) h
    where h.epoch < p_epoch or h.state < p_state;
end
$$;

create function lakelog.log_start_raise(p_pids bigint[], p_starts bigint[]) returns table (pid bigint, removed bigint)
    language plpgsql
as $$
begin
    perform lakelog.lock_partitions(p_pids);
    return query
    with newest as materialized (
        select h.*, least(greatest(a.start, h.log_start), h.next_offset) as new_start
        from unnest(p_pids, p_starts) as a (pid, start)
        cross join lateral (select * from lakelog.head x where x.pid = a.pid order by x.version desc limit 1) h
    ), raised as (
        insert into lakelog.head (pid, version, next_offset, log_start, total_bytes, appended_at, roll, epoch, state)
        select n.pid, n.version + 1, n.next_offset, n.new_start, n.total_bytes, n.appended_at, n.roll, n.epoch, n.state
        from newest n where n.new_start > n.log_start
    )
    select n.pid, n.new_start - n.log_start from newest n;
end
$$;

-- Creates a new hot table, unless another caller did so since p_expected was read. Hot tables have no common parent, so
-- dropping one waits only for its own readers.
create function lakelog.roll_begin(p_expected integer) returns integer
    language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_roll integer;
begin
    perform pg_advisory_xact_lock(lakelog.lock_key(0));
    select coalesce(max(roll), 0) into v_roll from lakelog.roll;
    if p_expected is not null and p_expected <> v_roll then
        return v_roll;
    end if;
    v_roll := v_roll + 1;
    execute format(
        'create table lakelog.%I ('
        'pid bigint not null, end_offset bigint not null, count integer not null, bytes_end bigint not null, '
        'appended_at timestamptz not null, epoch integer not null, format smallint not null default 1, '
        'payload bytea not null, primary key (pid, end_offset)) '
        'with (autovacuum_enabled = off, toast.autovacuum_enabled = off)', 'hot_' || v_roll);
    execute format('alter table lakelog.%I alter payload set storage external', 'hot_' || v_roll);
    execute format('grant select, insert on lakelog.%I to lakelog_service', 'hot_' || v_roll);
    insert into lakelog.roll (roll) values (v_roll);
    perform lakelog.lock_partitions(array(select pid from lakelog.partition order by pid));
    with newest as materialized (
        select h.* from lakelog.partition p
        cross join lateral (select * from lakelog.head x where x.pid = p.pid order by x.version desc limit 1) h
    ), spans as (
        -- The span of a partition without appends since the last roll is moved, so that idle partitions cost nothing.
        insert into lakelog.span (pid, first_offset, roll) select n.pid, n.next_offset, v_roll from newest n where n.state <> 2
        on conflict (pid, first_offset) do update set roll = excluded.roll
    )
    insert into lakelog.head (pid, version, next_offset, log_start, total_bytes, appended_at, roll, epoch, state)
    select n.pid, n.version + 1, n.next_offset, n.log_start, n.total_bytes, n.appended_at, v_roll, n.epoch, n.state from newest n;
    return v_roll;
end
$$;

create function lakelog.heads_trim() returns bigint
    language plpgsql
as $$
declare
    v_trimmed bigint;
begin
    with doomed as (
        delete from lakelog.head old
        using (
            select p.pid, h.version from lakelog.partition p
            cross join lateral (
                select x.version from lakelog.head x where x.pid = p.pid order by x.version desc limit 1
            ) h
        ) newest
        where old.pid = newest.pid and old.version < newest.version
        returning 1
    )
    select count(*) into v_trimmed from doomed;
    return v_trimmed;
end
$$;

-- Keeps the last five batches of a producer per partition, and nothing of a producer that was inactive for p_memory.
create function lakelog.producers_trim(p_memory interval) returns bigint
    language plpgsql
as $$
declare
    v_trimmed bigint;
begin
    with doomed as (
        delete from lakelog.producer_batch old
        using (
            select pid, producer, max(sequence) as last, max(at) as last_at from lakelog.producer_batch group by pid, producer
        ) newest
        where old.pid = newest.pid and old.producer = newest.producer
          and (old.sequence <= newest.last - 5 or newest.last_at < clock_timestamp() - p_memory)
        returning 1
    )
    select count(*) into v_trimmed from doomed;
    return v_trimmed;
end
$$;

-- ---------------------------------------------------------------------------------------------------------------- rights

grant usage on schema lakelog to lakelog_service;
grant select on all tables in schema lakelog to lakelog_service;
grant insert on lakelog.environment, lakelog.topic, lakelog.token, lakelog.partition, lakelog.head, lakelog.span,
    lakelog.producer_batch, lakelog.reservation, lakelog.keyed_append to lakelog_service;
grant update on lakelog.topic, lakelog.token to lakelog_service;
grant delete on lakelog.head, lakelog.producer_batch, lakelog.reservation, lakelog.keyed_append to lakelog_service;
revoke all on all functions in schema lakelog from public;
grant execute on all functions in schema lakelog to lakelog_service;

insert into lakelog.installation default values;
select lakelog.roll_begin(null);
