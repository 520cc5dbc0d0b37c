-- The history of groups: a sample of each group in each topic once a minute. Samples of three resolutions are in tables of
-- their own, each partitioned by time, whose partitions are dropped whole. Times are minutes since 1970.

-- A group in a topic. A number of four bytes keeps samples and their index small.
create table lakelog.sample_series (
    series integer generated always as identity primary key,
    group_id bigint not null,
    incarnation bigint not null,
    unique (group_id, incarnation)
);
create table lakelog.sample_minute (
    series integer not null,
    minute integer not null,
    body bytea not null,
    primary key (series, minute)
) partition by range (minute);
create table lakelog.sample_ten_minutes (
    series integer not null,
    minute integer not null,
    body bytea not null,
    primary key (series, minute)
) partition by range (minute);
create table lakelog.sample_hour (
    series integer not null,
    minute integer not null,
    body bytea not null,
    primary key (series, minute)
) partition by range (minute);

-- Returns how long a partition of a history table is, and how long its rows are kept, in the unit of its times.
create function lakelog.history_lengths(p_table text, out width bigint, out kept bigint)
    language sql immutable parallel safe
as $$
    select l.width, l.kept from (values
        ('sample_minute', 1440::bigint, 2 * 1440::bigint),
        ('sample_ten_minutes', 1440, 30 * 1440),
        ('sample_hour', 30 * 1440, 400 * 1440)
    ) as l (name, width, kept) where l.name = p_table
$$;

-- Creates the partition of a history table for a time, and the next one, and drops those whose rows are all too old.
-- Returns how many were dropped. A partition that is in use is dropped later.
create function lakelog.history_extend(p_table text, p_now bigint) returns integer
    language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_lengths record := lakelog.history_lengths(p_table);
    v_name text;
    v_number bigint;
    v_dropped integer := 0;
begin
    if v_lengths.width is null then
        raise exception 'There is no history table %', p_table;
    end if;
    for v_number in p_now / v_lengths.width .. p_now / v_lengths.width + 1 loop
        v_name := format('lakelog.%I', p_table || '_' || v_number);
        if to_regclass(v_name) is null then
            perform pg_advisory_xact_lock(lakelog.lock_key(-7));
            if to_regclass(v_name) is null then
                execute format('create table %s (like lakelog.%I including all) '
                               'with (autovacuum_vacuum_insert_threshold = -1)', v_name, p_table);
                execute format('alter table lakelog.%I attach partition %s for values from (%s) to (%s)',
                               p_table, v_name, v_number * v_lengths.width, (v_number + 1) * v_lengths.width);
            end if;
        end if;
    end loop;
    perform set_config('lock_timeout', '100ms', true);
    for v_number, v_name in
        select n.number, format('lakelog.%I', c.relname)
        from pg_inherits i join pg_class c on c.oid = i.inhrelid
        cross join lateral (select substring(c.relname from '[0-9]+$')::bigint as number) n
        where i.inhparent = format('lakelog.%I', p_table)::regclass
          and (n.number + 1) * v_lengths.width <= p_now - v_lengths.kept
        order by 1
    loop
        execute format('drop table %s', v_name);
        v_dropped := v_dropped + 1;
    end loop;
    return v_dropped;
exception
    when lock_not_available then
        return 0;
end
$$;

-- Writes samples of a minute, and returns how many are new. The first sample of ten minutes and of an hour is written to
-- the coarse tables, too.
create function lakelog.samples_write(p_minute integer, p_groups bigint[], p_incarnations bigint[], p_bodies bytea[])
    returns integer
    language plpgsql
as $$
declare
    v_series integer[];
    v_written integer;
begin
    perform lakelog.history_extend(t.name, p_minute)
    from unnest(array['sample_minute', 'sample_ten_minutes', 'sample_hour']) as t (name)
    where to_regclass(format('lakelog.%I', t.name || '_' || p_minute / (lakelog.history_lengths(t.name)).width)) is null;
    insert into lakelog.sample_series (group_id, incarnation)
    select u.group_id, u.incarnation from unnest(p_groups, p_incarnations) as u (group_id, incarnation)
    where not exists (
        select from lakelog.sample_series s where s.group_id = u.group_id and s.incarnation = u.incarnation)
    order by 1, 2
    on conflict do nothing;
    select array_agg(s.series order by u.part) into v_series
    from unnest(p_groups, p_incarnations) with ordinality as u (group_id, incarnation, part)
    left join lakelog.sample_series s on s.group_id = u.group_id and s.incarnation = u.incarnation;
    insert into lakelog.sample_hour (series, minute, body)
    select u.series, p_minute / 60 * 60, u.body from unnest(v_series, p_bodies) as u (series, body)
    where u.series is not null on conflict do nothing;
    insert into lakelog.sample_ten_minutes (series, minute, body)
    select u.series, p_minute / 10 * 10, u.body from unnest(v_series, p_bodies) as u (series, body)
    where u.series is not null on conflict do nothing;
    insert into lakelog.sample_minute (series, minute, body)
    select u.series, p_minute, u.body from unnest(v_series, p_bodies) as u (series, body)
    where u.series is not null on conflict do nothing;
    get diagnostics v_written = row_count;
    return v_written;
end
$$;

revoke all on lakelog.sample_series, lakelog.sample_minute, lakelog.sample_ten_minutes, lakelog.sample_hour from public;
grant select, insert, delete on lakelog.sample_series to lakelog_service;
grant select, insert on lakelog.sample_minute, lakelog.sample_ten_minutes, lakelog.sample_hour to lakelog_service;
revoke all on function lakelog.history_lengths, lakelog.history_extend, lakelog.samples_write from public;
grant execute on function lakelog.history_lengths, lakelog.history_extend, lakelog.samples_write to lakelog_service;
