-- The outbox in an application's database, installed by `lakelog outbox install`. It can be run again.
--
-- A caller inserts into one of three tables, and waits for nothing. The relay reads what has become visible, by the ids of
-- transactions, so that an open transaction delays only its own messages. Rows are never updated or deleted: the relay empties
-- a table as a whole when it takes no new rows and all of its rows are in the log.

create schema if not exists lakelog_outbox;

-- The outbox: its id, the environment of its topics, and the slot that takes new messages.
create table if not exists lakelog_outbox.settings (
    only_row boolean primary key default true check (only_row),
    outbox_id bigint not null,
    project text not null,
    environment text not null,
    version integer not null,
    active smallint not null default 0
) with (fillfactor = 50);

create sequence if not exists lakelog_outbox.message_number;

-- A database that was restored from a backup may use a number twice; the salt tells the messages apart.
create table if not exists lakelog_outbox.message (
    slot smallint not null,
    number bigint not null default nextval('lakelog_outbox.message_number'),
    salt integer not null default floor(random() * 2147483647),
    transaction bigint not null default pg_current_xact_id()::text::bigint,
    created_at timestamptz not null default clock_timestamp(),
    topic text not null,
    key bytea,
    value bytea,
    headers jsonb,
    content_type text,
    correlation_id text,
    idempotency_key text,
    partition integer,
    expires_ms bigint,
    expires_at timestamptz,
    deliver_at timestamptz
) partition by list (slot);
create table if not exists lakelog_outbox.message_0 partition of lakelog_outbox.message for values in (0)
    with (autovacuum_enabled = off, toast.autovacuum_enabled = off);
create table if not exists lakelog_outbox.message_1 partition of lakelog_outbox.message for values in (1)
    with (autovacuum_enabled = off, toast.autovacuum_enabled = off);
create table if not exists lakelog_outbox.message_2 partition of lakelog_outbox.message for values in (2)
    with (autovacuum_enabled = off, toast.autovacuum_enabled = off);
create index if not exists message_by_transaction on lakelog_outbox.message (transaction, number);

-- Publishes a message when the caller's transaction commits, and returns its id. The value is bytes.
create or replace function lakelog_outbox.publish(
    topic text, value bytea, key bytea default null, headers jsonb default null, deliver_at timestamptz default null,
    content_type text default null, correlation_id text default null, idempotency_key text default null,
    partition integer default null, expires interval default null
) returns text
    language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_settings lakelog_outbox.settings;
    v_id text;
begin
    if publish.topic !~ '^[a-z0-9._-]{1,120}$' then
        raise exception 'Topic % is not a valid name: 1 to 120 of the characters a-z, 0-9, dot, underscore and hyphen.',
            quote_nullable(publish.topic) using errcode = 'invalid_parameter_value';
    end if;
    if octet_length(publish.value) > 1048576 then
        raise exception 'The value has % bytes; at most 1048576 are allowed.', octet_length(publish.value)
            using errcode = 'program_limit_exceeded';
    end if;
    if jsonb_typeof(publish.headers) <> 'object' then
        raise exception 'The headers must be a JSON object of texts.' using errcode = 'invalid_parameter_value';
    end if;
    select * into strict v_settings from lakelog_outbox.settings;
    insert into lakelog_outbox.message as m (
        slot, topic, key, value, headers, content_type, correlation_id, idempotency_key, partition, expires_ms, deliver_at)
    values (
        v_settings.active, publish.topic, publish.key, publish.value, publish.headers, publish.content_type,
        publish.correlation_id, publish.idempotency_key, publish.partition,
        ceil(extract(epoch from publish.expires) * 1000), publish.deliver_at)
    returning format('outbox-%s-%s-%s', v_settings.outbox_id, m.number, m.salt) into v_id;
    return v_id;
end
$$;

-- The same with a JSON value. PL/pgSQL keeps the plan of the call, which a function in SQL would make each time.
create or replace function lakelog_outbox.publish(
    topic text, value jsonb, key text default null, headers jsonb default null, deliver_at timestamptz default null,
    correlation_id text default null, idempotency_key text default null, partition integer default null,
    expires interval default null
) returns text
    language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    return lakelog_outbox.publish(
        publish.topic, convert_to(publish.value::text, 'UTF8'), convert_to(publish.key, 'UTF8'), publish.headers,
        publish.deliver_at, 'application/json', publish.correlation_id, publish.idempotency_key, publish.partition,
        publish.expires);
end
$$;

-- The same with a text, which must be JSON unless a content type is given.
create or replace function lakelog_outbox.publish(
    topic text, value text, key text default null, headers jsonb default null, deliver_at timestamptz default null,
    content_type text default null, correlation_id text default null, idempotency_key text default null,
    partition integer default null, expires interval default null
) returns text
    language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    return lakelog_outbox.publish(
        publish.topic,
        convert_to(case when publish.content_type is null then publish.value::json::text else publish.value end, 'UTF8'),
        convert_to(publish.key, 'UTF8'), publish.headers, publish.deliver_at,
        coalesce(publish.content_type, 'application/json'), publish.correlation_id, publish.idempotency_key,
        publish.partition, publish.expires);
end
$$;

-- Publishes messages of the Python client, a JSON array with bytes in base64, and returns their ids in order. One parameter of
-- type text is the same for all database libraries. Without statistics, PostgreSQL estimates 58 million rows, and would compile
-- the statement for a second. PL/pgSQL keeps the plan, which takes longer than the insert.
create or replace function lakelog_outbox.publish_messages(messages text) returns setof text
    language plpgsql security definer set jit = off set search_path = pg_catalog, pg_temp
as $$
begin
    return query
    with settings as materialized (select * from lakelog_outbox.settings)
    , inserted as (
        insert into lakelog_outbox.message as m (
            slot, topic, key, value, headers, content_type, correlation_id, idempotency_key, partition, expires_ms,
            expires_at, deliver_at)
        select s.active, d.doc ->> 'topic', decode(d.doc ->> 'key', 'base64'), decode(d.doc ->> 'value', 'base64'),
               nullif(d.doc -> 'headers', 'null'), d.doc ->> 'content_type', d.doc ->> 'correlation_id',
               d.doc ->> 'idempotency_key', (d.doc ->> 'partition')::integer, (d.doc ->> 'expires_ms')::bigint,
               (d.doc ->> 'expires_at')::timestamptz,
               coalesce((d.doc ->> 'deliver_at')::timestamptz,
                        clock_timestamp() + (d.doc ->> 'delay_ms')::bigint * interval '1 millisecond')
        from settings s cross join jsonb_array_elements(publish_messages.messages::jsonb) with ordinality as d (doc, place)
        order by d.place
        returning m.number, m.salt
    )
    select format('outbox-%s-%s-%s', s.outbox_id, i.number, i.salt) from settings s cross join inserted i order by i.number;
end
$$;

-- Returns messages that are visible now and were not seen: of transactions from p_end on, and of those in p_running. They are
-- behind the transaction and number of p_after, at most p_rows, and the last one is that which reaches p_bytes. Without
-- messages, there is one row without a number. PL/pgSQL keeps the plan, which takes longer than reading a hundred messages.
create or replace function lakelog_outbox.read(
    p_end bigint, p_running bigint[], p_after_transaction bigint, p_after_number bigint, p_rows integer, p_bytes bigint
) returns table (
    snapshot text, started_at timestamptz, is_last boolean, number bigint, salt integer, transaction bigint,
    created_at timestamptz, topic text, key bytea, value bytea, headers jsonb, content_type text, correlation_id text,
    idempotency_key text, partition integer, expires_ms bigint, expires_at timestamptz, deliver_at timestamptz
)
    language plpgsql stable set enable_seqscan = off set plan_cache_mode = force_generic_plan set jit = off
    set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    return query
    with found as materialized (
        select f.* from (
            select m.* from lakelog_outbox.message m
            where m.transaction = any (p_running) and (m.transaction, m.number) > (p_after_transaction, p_after_number)
            union all
            select m.* from lakelog_outbox.message m
            where m.transaction >= p_end and (m.transaction, m.number) > (p_after_transaction, p_after_number)
        ) f
        order by f.transaction, f.number limit p_rows
    ), sized as (
        select f.*, coalesce(sum(octet_length(f.value)) over (order by f.transaction, f.number
                   rows between unbounded preceding and 1 preceding), 0) as bytes_before
        from found f
    ), taken as (
        select s.* from sized s where s.bytes_before < p_bytes
    )
    select a.snapshot, a.started_at, a.is_last, t.number, t.salt, t.transaction, t.created_at, t.topic, t.key, t.value,
           t.headers, t.content_type, t.correlation_id, t.idempotency_key, t.partition, t.expires_ms, t.expires_at,
           t.deliver_at
    from (
        select pg_current_snapshot()::text as snapshot, pg_postmaster_start_time() as started_at,
               (select count(*) from found) < p_rows and (select count(*) from taken) = (select count(*) from found)
                   as is_last
    ) a
    left join taken t on true
    order by t.transaction, t.number;
end
$$;

-- Lets new messages go to the next slot, if that is empty, and returns whether they do.
create or replace function lakelog_outbox.rotate() returns boolean
    language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_active smallint := (select s.active from lakelog_outbox.settings s for update);
    v_next smallint;
begin
    for i in 1 .. 2 loop
        v_next := (v_active + i) % 3;
        if not exists (select from lakelog_outbox.message m where m.slot = v_next) then
            update lakelog_outbox.settings set active = v_next;
            return true;
        end if;
    end loop;
    return false;
end
$$;

-- Empties a slot if it takes no new messages and all of its messages were seen; p_end and p_running as in read(). Returns
-- whether it did. An open transaction with messages in the slot has a lock on it, so that the slot is left for later.
create or replace function lakelog_outbox.empty(p_slot smallint, p_end bigint, p_running bigint[]) returns boolean
    language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    if p_slot = (select s.active from lakelog_outbox.settings s)
        or not exists (select from lakelog_outbox.message m where m.slot = p_slot) then
        return false;
    end if;
    begin
        execute format('lock table lakelog_outbox.message_%s in access exclusive mode nowait', p_slot);
    exception when lock_not_available then
        return false;
    end;
    if exists (
        select from lakelog_outbox.message m
        where m.slot = p_slot and (m.transaction >= p_end or m.transaction = any (p_running))
    ) then
        return false;
    end if;
    execute format('truncate lakelog_outbox.message_%s', p_slot);
    return true;
end
$$;

-- Gives messages of a database that was restored from a dump a transaction id of this cluster. Returns how many.
create or replace function lakelog_outbox.adopt() returns bigint
    language sql security definer set search_path = pg_catalog, pg_temp
as $$
    with adopted as (
        update lakelog_outbox.message set transaction = pg_current_xact_id()::text::bigint
        where transaction >= pg_snapshot_xmax(pg_current_snapshot())::text::bigint
        returning 1
    )
    select count(*) from adopted
$$;

revoke all on all functions in schema lakelog_outbox from public;
