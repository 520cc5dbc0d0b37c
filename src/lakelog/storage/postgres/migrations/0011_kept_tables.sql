-- Kept tables take the batches that survive in hot tables whose other batches are retired, so that these can be dropped. A
-- partition without retention would keep the bytes of all its neighbours otherwise. A kept table has a number below the
-- active roll, and never takes appends.

alter table lakelog.roll add column kept boolean not null default false;

-- Creates the hot table of a roll. `autovacuum` is off for a table that takes appends: nothing in it is updated.
create function lakelog.hot_table_create(p_roll integer, p_kept boolean) returns void
    language plpgsql
as $$
declare
    v_table text := 'hot_' || p_roll;
begin
    execute format(
        'create table lakelog.%I ('
        'pid bigint not null, end_offset bigint not null, count integer not null, bytes_end bigint not null, '
        'appended_at timestamptz not null, epoch integer not null, format smallint not null default 1, '
        'payload bytea not null, primary key (pid, end_offset)) '
        'with (autovacuum_enabled = %s, toast.autovacuum_enabled = %s)', v_table, p_kept, p_kept);
    execute format('alter table lakelog.%I alter payload set storage external', v_table);
    execute format('grant select, insert on lakelog.%I to lakelog_service', v_table);
    insert into lakelog.roll (roll, kept) values (p_roll, p_kept);
end
$$;

-- Creates a new hot table, unless another caller did so since p_expected was read. Hot tables have no common parent, so
-- dropping one waits only for its own readers. Publishers wait for nothing: those that named the old table while this
-- committed are still in it, and roll_drop waits for them. Autovacuum then freezes the old table once: every row was
-- inserted since the last vacuum, and none is inserted after this one. The number between two rolls is for a kept table.
create or replace function lakelog.roll_begin(p_expected integer) returns integer
    language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_roll integer;
begin
    perform pg_advisory_xact_lock(lakelog.lock_key(-3));
    select coalesce(max(roll), 0) into v_roll from lakelog.roll;
    if p_expected is not null and p_expected <> v_roll then
        return v_roll;
    end if;
    if v_roll > 0 then
        execute format(
            'alter table lakelog.%I set (autovacuum_enabled = on, toast.autovacuum_enabled = on, '
            'autovacuum_freeze_min_age = 0, toast.autovacuum_freeze_min_age = 0, '
            'autovacuum_vacuum_insert_threshold = 0, toast.autovacuum_vacuum_insert_threshold = 0, '
            'autovacuum_vacuum_insert_scale_factor = 0, toast.autovacuum_vacuum_insert_scale_factor = 0)',
            'hot_' || v_roll);
    end if;
    v_roll := v_roll + 2;
    perform lakelog.hot_table_create(v_roll, false);
    return v_roll;
end
$$;

-- Returns the part of a span that is not retired, or no row. Batches are retired below the log start and in segments that
-- were verified at least p_grace ago. Segments do not overlap, so their shares of a span add up. A partition without a head
-- was removed.
create function lakelog.span_survivors(p_pid bigint, p_first bigint, p_grace interval)
    returns table (low bigint, high bigint)
    language sql stable
as $$
    select w.low, w.high
    from (select * from lakelog.head x where x.pid = p_pid order by x.version desc limit 1) h
    cross join lateral (
        select greatest(h.log_start, p_first) as low, least(h.next_offset, (
            select n.first_offset from lakelog.span n
            where n.pid = p_pid and n.first_offset > p_first order by n.first_offset limit 1)) as high
    ) w
    where w.low < w.high and w.high - w.low > (
        select coalesce(sum(least(g.end_offset, w.high) - greatest(g.first_offset, w.low)), 0)
        from lakelog.segment g
        where g.pid = p_pid and g.end_offset > w.low and g.first_offset < w.high
          and g.verified_at <= clock_timestamp() - p_grace)
$$;

-- Returns whether everything in the roll's hot table is retired, and no batch can be added.
create or replace function lakelog.roll_is_retired(p_roll integer, p_grace interval) returns boolean
    language sql stable
as $$
    select p_roll < (select max(roll) from lakelog.roll) and not exists (
        select from lakelog.span s cross join lateral lakelog.span_survivors(s.pid, s.first_offset, p_grace) w
        where s.roll = p_roll
    )
$$;

-- Returns about how many bytes of payload in the roll's hot table are not retired, from the first and the last batch of each
-- span. Sizes only rise within a partition.
create function lakelog.roll_surviving_bytes(p_roll integer, p_grace interval) returns bigint
    language plpgsql stable
as $$
declare
    v_bytes bigint;
begin
    execute format(
        'select coalesce(sum(l.bytes_end - f.bytes_end + octet_length(f.payload)), 0) '
        'from lakelog.span s cross join lateral lakelog.span_survivors(s.pid, s.first_offset, $2) w '
        'cross join lateral (select b.bytes_end, b.payload from lakelog.%1$I b '
        'where b.pid = s.pid and b.end_offset > w.low order by b.end_offset limit 1) f '
        'cross join lateral (select b.bytes_end from lakelog.%1$I b '
        'where b.pid = s.pid and b.end_offset <= w.high order by b.end_offset desc limit 1) l '
        'where s.roll = $1', 'hot_' || p_roll
    ) into v_bytes using p_roll, p_grace;
    return v_bytes;
end
$$;

-- Copies batches of one span that are not retired to a kept table, about p_bytes of them, and lets the span name it. The rest
-- becomes a span of its own. Takes the partition's lock: a promotion or append that began before the last roll may still add
-- to the span. Returns the bytes.
create function lakelog.span_keep(
    p_roll integer, p_pid bigint, p_first bigint, p_target integer, p_grace interval, p_bytes bigint
) returns bigint
    language plpgsql
as $$
declare
    v_low bigint;
    v_high bigint;
    v_end bigint;
    v_bytes bigint;
begin
    perform pg_advisory_xact_lock(lakelog.lock_key(p_pid));
    select w.low, w.high into v_low, v_high from lakelog.span_survivors(p_pid, p_first, p_grace) w;
    execute format(
        'with found as ('
        'select b.*, sum(octet_length(b.payload)) over (order by b.end_offset) as bytes from ('
        'select * from lakelog.%1$I where pid = $1 and end_offset > $2 and end_offset <= $3 order by end_offset limit 1000) b'
        '), chosen as (select * from found where bytes - octet_length(payload) < $4), copied as ('
        'insert into lakelog.%2$I (pid, end_offset, count, bytes_end, appended_at, epoch, format, payload) '
        'select pid, end_offset, count, bytes_end, appended_at, epoch, format, payload from chosen c '
        'where not exists (select from lakelog.segment g where g.pid = $1 and g.end_offset >= c.end_offset '
        'and g.first_offset <= c.end_offset - c.count and g.verified_at <= clock_timestamp() - $5)) '
        'select max(end_offset), coalesce(max(bytes), 0) from chosen', 'hot_' || p_roll, 'hot_' || p_target
    ) into v_end, v_bytes using p_pid, v_low, v_high, p_bytes, p_grace;
    if v_end is not null then
        update lakelog.span set roll = p_target where pid = p_pid and first_offset = p_first;
        if v_end < v_high then
            insert into lakelog.span (pid, first_offset, roll) values (p_pid, v_end, p_roll);
        end if;
    end if;
    return v_bytes;
end
$$;

-- Copies about p_bytes of what survives in a roll's hot table to a kept table, and returns how many; 0 if nothing is left or
-- no kept table is free. A kept table takes up to about p_table_bytes. One caller at a time.
create function lakelog.roll_keep(p_roll integer, p_grace interval, p_bytes bigint, p_table_bytes bigint) returns bigint
    language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_active integer;
    v_target integer;
    v_span record;
    v_bytes bigint := 0;
begin
    select max(roll) into v_active from lakelog.roll;
    if p_roll >= v_active or not pg_try_advisory_xact_lock(lakelog.lock_key(-4)) then
        return 0;
    end if;
    for v_span in
        select s.pid, s.first_offset from lakelog.span s
        cross join lateral lakelog.span_survivors(s.pid, s.first_offset, p_grace) w
        where s.roll = p_roll order by s.pid, s.first_offset limit 100
    loop
        if v_target is null then
            select r.roll into v_target from lakelog.roll r
            where r.kept and r.roll <> p_roll and pg_total_relation_size(format('lakelog.%I', 'hot_' || r.roll)) < p_table_bytes
            order by r.roll desc limit 1;
        end if;
        if v_target is null then
            v_target := v_active - 1;
            if exists (select from lakelog.roll r where r.roll = v_target) then
                return 0;  -- The next roll makes room for another kept table.
            end if;
            perform lakelog.hot_table_create(v_target, true);
        end if;
        v_bytes := v_bytes + lakelog.span_keep(
            p_roll, v_span.pid, v_span.first_offset, v_target, p_grace, p_bytes - v_bytes);
        exit when v_bytes >= p_bytes;
    end loop;
    return v_bytes;
end
$$;

revoke all on function lakelog.hot_table_create, lakelog.span_survivors, lakelog.roll_surviving_bytes, lakelog.span_keep,
    lakelog.roll_keep from public;
grant execute on function lakelog.span_survivors, lakelog.roll_surviving_bytes, lakelog.roll_keep to lakelog_service;
