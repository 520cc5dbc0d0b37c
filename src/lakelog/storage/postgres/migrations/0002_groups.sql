-- Consumer groups: their rows in the catalog, and what a cell stores for them.

-- ---------------------------------------------------------------------------------------------------------------- catalog

-- A group's id is never reused: everything that a group owns, in any cell, is keyed by it.
create table lakelog.consumer_group (
    group_id bigint generated always as identity primary key,
    environment_id bigint not null references lakelog.environment,
    name text not null,
    kind text not null,
    settings jsonb not null,
    version bigint not null default 1,
    cell smallint not null,
    paused text[] not null default '{}',
    created_at timestamptz not null default clock_timestamp(),
    deleted_at timestamptz,
    closed_at timestamptz
);
create unique index consumer_group_open on lakelog.consumer_group (environment_id, name) where deleted_at is null;
create index consumer_group_to_close on lakelog.consumer_group (group_id) where deleted_at is not null and closed_at is null;

create table lakelog.group_topic (
    group_id bigint not null references lakelog.consumer_group,
    incarnation bigint not null,
    starts bigint[] not null,
    epoch integer not null default 0,
    targets bigint[] not null default '{}',
    primary key (group_id, incarnation)
);
create index group_topic_by_topic on lakelog.group_topic (incarnation);

create table lakelog.server (
    server_id text primary key,
    address text not null,
    seen_at timestamptz not null
) with (fillfactor = 50);

-- -------------------------------------------------------------------------------------------------------------- one cell

-- The decisions of a group about a partition. The primary key makes a version unique. The newest row is never trimmed.
-- snapshot_version is the version of the newest row, up to this one, that holds the whole state; 0 if there is none.
create table lakelog.journal (
    group_id bigint not null,
    pid bigint not null,
    version bigint not null,
    snapshot_version bigint not null,
    at timestamptz not null,
    format smallint not null default 1,
    body bytea not null,
    primary key (group_id, pid, version)
) with (
    -- A snapshot of a few kilobytes stays in the row: a TOAST row and compression would cost more.
    toast_tuple_target = 8160,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 1000000,
    -- TOAST stores larger snapshots in chunks of 2 KiB: 50,000 dead chunks would be 100 MiB.
    toast.autovacuum_vacuum_threshold = 2000
);
alter table lakelog.journal alter body set storage external;

create table lakelog.members (
    group_id bigint not null,
    version bigint not null,
    at timestamptz not null,
    format smallint not null default 1,
    body bytea not null,
    primary key (group_id, version)
);

create table lakelog.heartbeat (
    group_id bigint not null,
    member_id text not null,
    seen_at timestamptz not null,
    primary key (group_id, member_id)
) with (fillfactor = 30, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- state: 0 dead, 1 redriven, 2 discarded.
create table lakelog.dead_letter (
    group_id bigint not null,
    pid bigint not null,
    message_offset bigint not null,
    epoch integer not null,
    state smallint not null default 0,
    at timestamptz not null,
    deliveries integer not null,
    failures integer not null,
    reason text not null,
    owner text not null,
    payload bytea,
    redriven_to bigint,
    primary key (group_id, pid, message_offset, epoch)
);
alter table lakelog.dead_letter alter payload set storage external;
create index dead_letter_by_state on lakelog.dead_letter (group_id, pid, state, message_offset, epoch);

-- ------------------------------------------------------------------------------------------------------------- functions

create function lakelog.ms(p_time timestamptz) returns bigint
    language sql stable parallel safe
    return floor(date_part('epoch', p_time) * 1000)::bigint;

-- Writes each entry whose version follows the journal's last while the clock is within its bounds, with its dead letters.
-- statuses: 0 written, 1 conflict, 2 time. Entries are sorted by group and pid, which prevents deadlocks. A row that the
-- snapshot of this statement misses still conflicts in the primary key: rows are kept longer than a statement may take.
create function lakelog.journals_commit(
    p_groups bigint[], p_pids bigint[], p_versions bigint[], p_snapshots boolean[], p_bodies bytea[],
    p_not_before bigint[], p_not_after bigint[],
    d_parts integer[] default '{}', d_offsets bigint[] default '{}', d_epochs integer[] default '{}',
    d_deliveries integer[] default '{}', d_failures integer[] default '{}',
    d_reasons text[] default '{}', d_owners text[] default '{}', d_payloads bytea[] default '{}',
    out clock_ms bigint, out statuses smallint[]
)
    language plpgsql
as $$
declare
    v_at timestamptz := clock_timestamp();
    v_ms bigint := lakelog.ms(v_at);
    v_until bigint;
begin
    with asked as materialized (
        select u.*, coalesce(n.snapshot_version, 0) as last_snapshot,
               case
                   when coalesce(n.version, 0) <> u.version - 1 then 1
                   when v_ms between u.not_before and u.not_after then 0
                   else 2
               end::smallint as status
        from unnest(p_groups, p_pids, p_versions, p_snapshots, p_bodies, p_not_before, p_not_after) with ordinality
            as u (group_id, pid, version, snapshot, body, not_before, not_after, part)
        left join lateral (
            select j.version, j.snapshot_version from lakelog.journal j
            where j.group_id = u.group_id and j.pid = u.pid order by j.version desc limit 1
        ) n on true
    ), written as (
        insert into lakelog.journal as j (group_id, pid, version, snapshot_version, at, body)
        select a.group_id, a.pid, a.version, case when a.snapshot then a.version else a.last_snapshot end, v_at, a.body
        from asked a where a.status = 0
        on conflict do nothing
        returning j.group_id, j.pid
    )
    select array_agg(case when a.status = 0 and w.pid is null then 1::smallint else a.status end order by a.part),
           min(a.not_after) filter (where w.pid is not null)
    into statuses, v_until
    from asked a left join written w on w.group_id = a.group_id and w.pid = a.pid;

    clock_ms := lakelog.ms(clock_timestamp());
    if clock_ms > v_until then
        -- The insert waited for another writer of the same version, which rolled back, and its time has passed.
        statuses := lakelog.journals_withdraw(p_groups, p_pids, p_versions, p_not_after, statuses, clock_ms);
    end if;
    if cardinality(d_parts) > 0 then
        insert into lakelog.dead_letter
            (group_id, pid, message_offset, epoch, at, deliveries, failures, reason, owner, payload)
        select p_groups[d.part], p_pids[d.part], d.message_offset, d.epoch, v_at,
               d.deliveries, d.failures, d.reason, d.owner, d.payload
        from unnest(d_parts, d_offsets, d_epochs, d_deliveries, d_failures, d_reasons, d_owners, d_payloads)
            as d (part, message_offset, epoch, deliveries, failures, reason, owner, payload)
        where statuses[d.part] = 0
        on conflict do nothing;
    end if;
end
$$;

-- Deletes the rows that this transaction wrote too late, and returns the resulting statuses.
create function lakelog.journals_withdraw(
    p_groups bigint[], p_pids bigint[], p_versions bigint[], p_not_after bigint[], p_statuses smallint[], p_ms bigint
) returns smallint[]
    language plpgsql
as $$
begin
    for i in 1 .. cardinality(p_statuses) loop
        if p_statuses[i] = 0 and p_not_after[i] < p_ms then
            delete from lakelog.journal
            where group_id = p_groups[i] and pid = p_pids[i] and version = p_versions[i];
            p_statuses[i] := 2;
        end if;
    end loop;
    return p_statuses;
end
$$;

-- Deletes up to p_limit rows of a journal below the newest snapshot of that age. Rows are found by single lookups in the
-- key, never by a scan from the oldest row: while a snapshot is held, a scan would visit all trimmed rows again.
create function lakelog.journal_cut(p_newest lakelog.journal, p_before timestamptz, p_limit bigint) returns bigint
    language plpgsql
as $$
declare
    v_snapshot bigint := p_newest.snapshot_version;
    v_low bigint := 0;
    v_high bigint := p_newest.version;
    v_middle bigint;
    v_at timestamptz;
    v_trimmed bigint;
begin
    perform 1 from lakelog.journal
    where group_id = p_newest.group_id and pid = p_newest.pid and version = v_snapshot - 1;
    if not found then
        return 0;
    end if;
    if p_newest.at >= p_before then
        -- Binary search for the newest row of that age. A missing version was trimmed, so it is older.
        while v_high - v_low > 1 loop
            v_middle := (v_low + v_high) / 2;
            select at into v_at from lakelog.journal
            where group_id = p_newest.group_id and pid = p_newest.pid and version = v_middle;
            if v_at >= p_before then
                v_high := v_middle;
            else
                v_low := v_middle;
            end if;
        end loop;
        select snapshot_version into v_snapshot from lakelog.journal
        where group_id = p_newest.group_id and pid = p_newest.pid and version = v_low;
        if v_snapshot is null then
            return 0;
        end if;
    end if;
    v_low := 0;
    v_high := v_snapshot;
    -- Binary search for the oldest row: trimming always removes the beginning.
    while v_high - v_low > 1 loop
        v_middle := (v_low + v_high) / 2;
        perform 1 from lakelog.journal
        where group_id = p_newest.group_id and pid = p_newest.pid and version = v_middle;
        if found then
            v_high := v_middle;
        else
            v_low := v_middle;
        end if;
    end loop;
    delete from lakelog.journal
    where group_id = p_newest.group_id and pid = p_newest.pid
      and version >= v_high and version < least(v_snapshot, v_high + p_limit);
    get diagnostics v_trimmed = row_count;
    return v_trimmed;
end
$$;

-- Deletes up to p_limit rows of a journal that is no longer needed. Its dead letters go first: they are found through it.
create function lakelog.journal_drop(p_group bigint, p_pid bigint, p_limit bigint) returns bigint
    language plpgsql
as $$
declare
    v_letters bigint;
    v_rows bigint;
begin
    delete from lakelog.dead_letter where ctid = any (array(
        select ctid from lakelog.dead_letter where group_id = p_group and pid = p_pid limit p_limit));
    get diagnostics v_letters = row_count;
    delete from lakelog.journal where ctid = any (array(
        select ctid from lakelog.journal where group_id = p_group and pid = p_pid
        order by version limit p_limit - v_letters));
    get diagnostics v_rows = row_count;
    return v_letters + v_rows;
end
$$;

-- Deletes up to about p_limit rows and returns how many. A caller that finds another one at work returns at once.
create function lakelog.journals_trim(p_grace interval, p_dropped bigint[], p_limit bigint) returns bigint
    language plpgsql
as $$
declare
    v_before timestamptz := clock_timestamp() - p_grace;
    v_newest lakelog.journal;
    v_group bigint := 9223372036854775807;
    v_pid bigint := 9223372036854775807;
    v_state smallint;
    v_rows bigint;
    v_trimmed bigint := 0;
begin
    if not pg_try_advisory_xact_lock(lakelog.lock_key(-2)) then
        return 0;
    end if;
    while v_trimmed < p_limit loop
        select * into v_newest from lakelog.journal where (group_id, pid) < (v_group, v_pid)
        order by group_id desc, pid desc, version desc limit 1;
        exit when not found;
        v_group := v_newest.group_id;
        v_pid := v_newest.pid;
        select state into v_state from lakelog.head where pid = v_pid order by version desc limit 1;
        if v_state = 2 or v_group = any (p_dropped) then
            v_trimmed := v_trimmed + lakelog.journal_drop(v_group, v_pid, p_limit - v_trimmed);
        else
            v_trimmed := v_trimmed + lakelog.journal_cut(v_newest, v_before, p_limit - v_trimmed);
        end if;
    end loop;
    delete from lakelog.members old
    where old.group_id = any (p_dropped) or exists (
        select from lakelog.members next
        where next.group_id = old.group_id and next.version = old.version + 1 and next.at < v_before);
    get diagnostics v_rows = row_count;
    delete from lakelog.heartbeat where group_id = any (p_dropped) or seen_at < clock_timestamp() - interval '1 day';
    return v_trimmed + v_rows;
end
$$;

-- Returns whether the version followed the last one and was written.
create function lakelog.members_write(p_group bigint, p_version bigint, p_body bytea) returns boolean
    language plpgsql
as $$
begin
    insert into lakelog.members (group_id, version, at, body)
    select p_group, p_version, clock_timestamp(), p_body
    where p_version - 1 = coalesce((
        select version from lakelog.members where group_id = p_group order by version desc limit 1), 0)
    on conflict do nothing;
    return found;
end
$$;

-- Records heartbeats and returns the clock. Members are sorted, which prevents deadlocks. A crash may lose the rows.
create function lakelog.heartbeats_write(p_groups bigint[], p_members text[]) returns bigint
    language plpgsql
as $$
declare
    v_at timestamptz := clock_timestamp();
begin
    perform set_config('synchronous_commit', 'off', true);
    insert into lakelog.heartbeat as h (group_id, member_id, seen_at)
    select u.group_id, u.member_id, v_at from unnest(p_groups, p_members) as u (group_id, member_id)
    on conflict (group_id, member_id) do update set seen_at = greatest(h.seen_at, excluded.seen_at);
    return lakelog.ms(v_at);
end
$$;

-- Discards dead letters and returns how many were in the state dead. Keys are sorted, which prevents deadlocks.
create function lakelog.dead_discard(
    p_group bigint, p_pids bigint[], p_offsets bigint[], p_epochs integer[]
) returns bigint
    language plpgsql
as $$
declare
    v_discarded bigint := 0;
begin
    for i in 1 .. cardinality(p_pids) loop
        update lakelog.dead_letter set state = 2
        where group_id = p_group and pid = p_pids[i] and message_offset = p_offsets[i] and epoch = p_epochs[i]
          and state = 0;
        v_discarded := v_discarded + found::integer;
    end loop;
    return v_discarded;
end
$$;

-- Appends, and marks the dead letters in the same transaction: p_pids holds the one partition, message n is for dead letter
-- n. If any is not in the state dead, nothing is done, and a row of status 6 names each of those. Otherwise the rows are
-- those of lakelog.append.
create function lakelog.redrive(
    r_group bigint, r_offsets bigint[], r_epochs integer[],
    p_roll integer, p_pids bigint[], p_epochs integer[], p_counts integer[], p_bytes bigint[],
    q_pids bigint[], q_producers bytea[], q_sequences bigint[], q_starts integer[], q_counts integer[],
    k_pids bigint[], k_hashes bytea[], k_starts integer[]
) returns setof lakelog.append_answer
    language plpgsql
as $$
declare
    v_key record;
    v_state smallint;
    v_refused boolean := false;
    v_answer lakelog.append_answer;
begin
    -- Rows are locked in order, which prevents deadlocks between two redrives.
    for v_key in
        select r.* from unnest(r_offsets, r_epochs) with ordinality as r (message_offset, epoch, part) order by 1, 2
    loop
        select d.state into v_state from lakelog.dead_letter d
        where d.group_id = r_group and d.pid = p_pids[1]
          and d.message_offset = v_key.message_offset and d.epoch = v_key.epoch
        for update;
        if v_state is distinct from 0 then
            v_refused := true;
            return next (p_pids[1], 6, null, null, null, null, null, null, v_key.part - 1, null, null)::lakelog.append_answer;
        end if;
    end loop;
    if v_refused then
        return;
    end if;
    for v_answer in
        select * from lakelog.append(p_roll, p_pids, p_epochs, p_counts, p_bytes, q_pids, q_producers, q_sequences,
                                     q_starts, q_counts, k_pids, k_hashes, k_starts)
    loop
        if v_answer.status = 0 then
            for i in 1 .. cardinality(r_offsets) loop
                update lakelog.dead_letter set state = 1, redriven_to = v_answer.base + i - 1
                where group_id = r_group and pid = p_pids[1] and message_offset = r_offsets[i] and epoch = r_epochs[i];
            end loop;
        end if;
        return next v_answer;
    end loop;
end
$$;

-- ---------------------------------------------------------------------------------------------------------------- rights

grant select, insert, update on lakelog.consumer_group to lakelog_service;
grant select, insert, delete on lakelog.journal, lakelog.members to lakelog_service;
grant select, insert, update, delete on lakelog.group_topic, lakelog.server, lakelog.heartbeat, lakelog.dead_letter
    to lakelog_service;
revoke all on all functions in schema lakelog from public;
grant execute on all functions in schema lakelog to lakelog_service;
