-- The present schema, written by pg_dump from the migrations; a test keeps it in step.

CREATE SCHEMA lakelog;

CREATE TYPE lakelog.append_answer AS (
	pid bigint,
	status smallint,
	base bigint,
	bytes_base bigint,
	appended_at timestamp with time zone,
	epoch integer,
	roll integer,
	keyed boolean,
	part integer,
	verdict smallint,
	part_offset bigint
);

CREATE FUNCTION lakelog.append(p_roll integer, p_pids bigint[], p_epochs integer[], p_counts integer[], p_bytes bigint[], q_pids bigint[], q_producers bytea[], q_sequences bigint[], q_starts integer[], q_counts integer[], k_pids bigint[], k_hashes bytea[], k_starts integer[]) RETURNS SETOF lakelog.append_answer
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION lakelog.heads_change(p_pids bigint[], p_state smallint, p_epoch integer) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    if p_state = 2 then
        -- A creator that was overtaken by this delete shall find the heads there, and deleted.
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

CREATE FUNCTION lakelog.heads_create(p_pids bigint[], p_epoch integer) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
    v_roll integer;
begin
    -- A roll in between would leave the new partitions in the old hot table.
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

CREATE FUNCTION lakelog.heads_trim() RETURNS bigint
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION lakelog.lock_key(p_pid bigint) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ('5497628094138482688'::bigint + p_pid);

CREATE FUNCTION lakelog.lock_partitions(p_pids bigint[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
    v_pid bigint;
begin
    foreach v_pid in array p_pids loop
        perform pg_advisory_xact_lock(lakelog.lock_key(v_pid));
    end loop;
end
$$;

CREATE FUNCTION lakelog.log_start_raise(p_pids bigint[], p_starts bigint[]) RETURNS TABLE(pid bigint, removed bigint)
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION lakelog.offset_search(p_pid bigint, p_time timestamp with time zone, p_max_bytes bigint) RETURNS bigint
    LANGUAGE plpgsql STABLE
    AS $_$
declare
    v_low bigint;
    v_high bigint;
    v_middle bigint;
    v_bytes bigint;
    v_roll integer;
    v_batch record;
begin
    select log_start, next_offset, total_bytes - p_max_bytes into v_low, v_high, v_bytes
    from lakelog.head where pid = p_pid order by version desc limit 1;
    while v_low < v_high loop
        v_middle := (v_low + v_high) / 2;
        select roll into v_roll from lakelog.span
        where pid = p_pid and first_offset <= v_middle order by first_offset desc limit 1;
        execute format(
            'select end_offset, count, appended_at, bytes_end - octet_length(payload) as bytes_start from lakelog.%I '
            'where pid = $1 and end_offset > $2 order by end_offset limit 1', 'hot_' || v_roll
        ) into strict v_batch using p_pid, v_middle;
        if v_batch.appended_at >= p_time or v_batch.bytes_start >= v_bytes then
            v_high := v_batch.end_offset - v_batch.count;
        else
            v_low := v_batch.end_offset;
        end if;
    end loop;
    return v_low;
end
$_$;

CREATE FUNCTION lakelog.producers_trim(p_memory interval) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION lakelog.reserve(p_durable boolean, p_incarnations bigint[], p_key_hashes bytea[], p_body_hashes bytea[], p_partitions integer[]) RETURNS TABLE(part integer, body_hash bytea, partition integer)
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION lakelog.roll_begin(p_expected integer) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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
        -- A partition that got nothing since the last roll has its span moved, so that idle ones cost nothing.
        insert into lakelog.span (pid, first_offset, roll) select n.pid, n.next_offset, v_roll from newest n where n.state <> 2
        on conflict (pid, first_offset) do update set roll = excluded.roll
    )
    insert into lakelog.head (pid, version, next_offset, log_start, total_bytes, appended_at, roll, epoch, state)
    select n.pid, n.version + 1, n.next_offset, n.log_start, n.total_bytes, n.appended_at, v_roll, n.epoch, n.state from newest n;
    return v_roll;
end
$$;

CREATE FUNCTION lakelog.roll_drop(p_roll integer) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    if not lakelog.roll_is_retired(p_roll) then
        return false;
    end if;
    perform set_config('lock_timeout', '100ms', true);
    execute format('lock table lakelog.%I in access exclusive mode', 'hot_' || p_roll);
    if not lakelog.roll_is_retired(p_roll) then
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

CREATE FUNCTION lakelog.roll_is_retired(p_roll integer) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
    select p_roll < (select max(roll) from lakelog.roll) and not exists (
        select 1
        from lakelog.span s
        cross join lateral (select * from lakelog.head x where x.pid = s.pid order by x.version desc limit 1) h
        where s.roll = p_roll
          and (h.roll = p_roll or h.log_start < least(h.next_offset, (
              select n.first_offset from lakelog.span n
              where n.pid = s.pid and n.first_offset > s.first_offset order by n.first_offset limit 1)))
    )
$$;

CREATE TABLE lakelog.cell (
    cell smallint NOT NULL,
    name text NOT NULL
);

ALTER TABLE lakelog.cell ALTER COLUMN cell ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME lakelog.cell_cell_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE lakelog.environment (
    environment_id bigint NOT NULL,
    project text NOT NULL,
    name text NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

ALTER TABLE lakelog.environment ALTER COLUMN environment_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME lakelog.environment_environment_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE lakelog.head (
    pid bigint NOT NULL,
    version bigint NOT NULL,
    next_offset bigint NOT NULL,
    log_start bigint NOT NULL,
    total_bytes bigint NOT NULL,
    appended_at timestamp with time zone NOT NULL,
    roll integer NOT NULL,
    epoch integer NOT NULL,
    state smallint NOT NULL,
    format smallint DEFAULT 1 NOT NULL
);

CREATE TABLE lakelog.hot_1 (
    pid bigint NOT NULL,
    end_offset bigint NOT NULL,
    count integer NOT NULL,
    bytes_end bigint NOT NULL,
    appended_at timestamp with time zone NOT NULL,
    epoch integer NOT NULL,
    format smallint DEFAULT 1 NOT NULL,
    payload bytea NOT NULL
)
WITH (autovacuum_enabled=off, toast.autovacuum_enabled=off);
ALTER TABLE ONLY lakelog.hot_1 ALTER COLUMN payload SET STORAGE EXTERNAL;

CREATE TABLE lakelog.installation (
    only_row boolean DEFAULT true NOT NULL,
    installation_id uuid DEFAULT gen_random_uuid() NOT NULL,
    cell smallint DEFAULT 0 NOT NULL,
    feature_level integer DEFAULT 1 NOT NULL,
    CONSTRAINT installation_only_row_check CHECK (only_row)
);

CREATE TABLE lakelog.keyed_append (
    pid bigint NOT NULL,
    key_hash bytea NOT NULL,
    base_offset bigint NOT NULL,
    at timestamp with time zone NOT NULL
);

CREATE TABLE lakelog.migration (
    version integer NOT NULL,
    name text NOT NULL,
    applied_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

CREATE TABLE lakelog.partition (
    pid bigint NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

CREATE TABLE lakelog.producer_batch (
    pid bigint NOT NULL,
    producer bytea NOT NULL,
    sequence bigint NOT NULL,
    count integer NOT NULL,
    base_offset bigint NOT NULL,
    at timestamp with time zone NOT NULL
);

CREATE TABLE lakelog.reservation (
    incarnation bigint NOT NULL,
    key_hash bytea NOT NULL,
    body_hash bytea NOT NULL,
    partition integer NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

CREATE TABLE lakelog.roll (
    roll integer NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

CREATE TABLE lakelog.span (
    pid bigint NOT NULL,
    first_offset bigint NOT NULL,
    roll integer NOT NULL
);

CREATE TABLE lakelog.token (
    token_id text NOT NULL,
    environment_id bigint NOT NULL,
    name text NOT NULL,
    hash bytea NOT NULL,
    rights text[] NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    expires_at timestamp with time zone,
    revoked_at timestamp with time zone
);

CREATE TABLE lakelog.topic (
    incarnation bigint NOT NULL,
    environment_id bigint NOT NULL,
    name text NOT NULL,
    epoch integer DEFAULT 0 NOT NULL,
    cells smallint[] NOT NULL,
    slot_cells smallint[] NOT NULL,
    settings jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    deleted_at timestamp with time zone,
    closed_at timestamp with time zone
);

ALTER TABLE lakelog.topic ALTER COLUMN incarnation ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME lakelog.topic_incarnation_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

ALTER TABLE ONLY lakelog.cell
    ADD CONSTRAINT cell_name_key UNIQUE (name);

ALTER TABLE ONLY lakelog.cell
    ADD CONSTRAINT cell_pkey PRIMARY KEY (cell);

ALTER TABLE ONLY lakelog.environment
    ADD CONSTRAINT environment_pkey PRIMARY KEY (environment_id);

ALTER TABLE ONLY lakelog.environment
    ADD CONSTRAINT environment_project_name_key UNIQUE (project, name);

ALTER TABLE ONLY lakelog.head
    ADD CONSTRAINT head_pkey PRIMARY KEY (pid, version);

ALTER TABLE ONLY lakelog.hot_1
    ADD CONSTRAINT hot_1_pkey PRIMARY KEY (pid, end_offset);

ALTER TABLE ONLY lakelog.installation
    ADD CONSTRAINT installation_pkey PRIMARY KEY (only_row);

ALTER TABLE ONLY lakelog.keyed_append
    ADD CONSTRAINT keyed_append_pkey PRIMARY KEY (pid, key_hash);

ALTER TABLE ONLY lakelog.migration
    ADD CONSTRAINT migration_pkey PRIMARY KEY (version);

ALTER TABLE ONLY lakelog.partition
    ADD CONSTRAINT partition_pkey PRIMARY KEY (pid);

ALTER TABLE ONLY lakelog.producer_batch
    ADD CONSTRAINT producer_batch_pkey PRIMARY KEY (pid, producer, sequence);

ALTER TABLE ONLY lakelog.reservation
    ADD CONSTRAINT reservation_pkey PRIMARY KEY (incarnation, key_hash);

ALTER TABLE ONLY lakelog.roll
    ADD CONSTRAINT roll_pkey PRIMARY KEY (roll);

ALTER TABLE ONLY lakelog.span
    ADD CONSTRAINT span_pkey PRIMARY KEY (pid, first_offset);

ALTER TABLE ONLY lakelog.token
    ADD CONSTRAINT token_hash_key UNIQUE (hash);

ALTER TABLE ONLY lakelog.token
    ADD CONSTRAINT token_pkey PRIMARY KEY (token_id);

ALTER TABLE ONLY lakelog.topic
    ADD CONSTRAINT topic_pkey PRIMARY KEY (incarnation);

CREATE INDEX keyed_append_by_time ON lakelog.keyed_append USING brin (at);

CREATE INDEX reservation_by_time ON lakelog.reservation USING brin (at);

CREATE INDEX span_by_roll ON lakelog.span USING btree (roll);

CREATE UNIQUE INDEX topic_open ON lakelog.topic USING btree (environment_id, name) WHERE (deleted_at IS NULL);

CREATE INDEX topic_to_close ON lakelog.topic USING btree (incarnation) WHERE ((deleted_at IS NOT NULL) AND (closed_at IS NULL));

ALTER TABLE ONLY lakelog.token
    ADD CONSTRAINT token_environment_id_fkey FOREIGN KEY (environment_id) REFERENCES lakelog.environment(environment_id);

ALTER TABLE ONLY lakelog.topic
    ADD CONSTRAINT topic_environment_id_fkey FOREIGN KEY (environment_id) REFERENCES lakelog.environment(environment_id);

GRANT USAGE ON SCHEMA lakelog TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.append(p_roll integer, p_pids bigint[], p_epochs integer[], p_counts integer[], p_bytes bigint[], q_pids bigint[], q_producers bytea[], q_sequences bigint[], q_starts integer[], q_counts integer[], k_pids bigint[], k_hashes bytea[], k_starts integer[]) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.append(p_roll integer, p_pids bigint[], p_epochs integer[], p_counts integer[], p_bytes bigint[], q_pids bigint[], q_producers bytea[], q_sequences bigint[], q_starts integer[], q_counts integer[], k_pids bigint[], k_hashes bytea[], k_starts integer[]) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.heads_change(p_pids bigint[], p_state smallint, p_epoch integer) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.heads_change(p_pids bigint[], p_state smallint, p_epoch integer) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.heads_create(p_pids bigint[], p_epoch integer) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.heads_create(p_pids bigint[], p_epoch integer) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.heads_trim() FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.heads_trim() TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.lock_key(p_pid bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.lock_key(p_pid bigint) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.lock_partitions(p_pids bigint[]) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.lock_partitions(p_pids bigint[]) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.log_start_raise(p_pids bigint[], p_starts bigint[]) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.log_start_raise(p_pids bigint[], p_starts bigint[]) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.offset_search(p_pid bigint, p_time timestamp with time zone, p_max_bytes bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.offset_search(p_pid bigint, p_time timestamp with time zone, p_max_bytes bigint) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.producers_trim(p_memory interval) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.producers_trim(p_memory interval) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.reserve(p_durable boolean, p_incarnations bigint[], p_key_hashes bytea[], p_body_hashes bytea[], p_partitions integer[]) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.reserve(p_durable boolean, p_incarnations bigint[], p_key_hashes bytea[], p_body_hashes bytea[], p_partitions integer[]) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.roll_begin(p_expected integer) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.roll_begin(p_expected integer) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.roll_drop(p_roll integer) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.roll_drop(p_roll integer) TO lakelog_service;

REVOKE ALL ON FUNCTION lakelog.roll_is_retired(p_roll integer) FROM PUBLIC;
GRANT ALL ON FUNCTION lakelog.roll_is_retired(p_roll integer) TO lakelog_service;

GRANT SELECT ON TABLE lakelog.cell TO lakelog_service;

GRANT SELECT,INSERT ON TABLE lakelog.environment TO lakelog_service;

GRANT SELECT,INSERT,DELETE ON TABLE lakelog.head TO lakelog_service;

GRANT SELECT,INSERT ON TABLE lakelog.hot_1 TO lakelog_service;

GRANT SELECT ON TABLE lakelog.installation TO lakelog_service;

GRANT SELECT,INSERT,DELETE ON TABLE lakelog.keyed_append TO lakelog_service;

GRANT SELECT ON TABLE lakelog.migration TO lakelog_service;

GRANT SELECT,INSERT ON TABLE lakelog.partition TO lakelog_service;

GRANT SELECT,INSERT,DELETE ON TABLE lakelog.producer_batch TO lakelog_service;

GRANT SELECT,INSERT,DELETE ON TABLE lakelog.reservation TO lakelog_service;

GRANT SELECT ON TABLE lakelog.roll TO lakelog_service;

GRANT SELECT,INSERT ON TABLE lakelog.span TO lakelog_service;

GRANT SELECT,INSERT,UPDATE ON TABLE lakelog.token TO lakelog_service;

GRANT SELECT,INSERT,UPDATE ON TABLE lakelog.topic TO lakelog_service;
