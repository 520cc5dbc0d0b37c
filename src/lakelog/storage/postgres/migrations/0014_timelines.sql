-- The ends of all partitions when a promoted standby began to accept writes. They show which offsets were lost, even after
-- the log has grown past them.
create table lakelog.timeline (
    timeline integer primary key,
    began_at timestamptz not null default clock_timestamp()
);

create table lakelog.timeline_end (
    pid bigint not null references lakelog.partition on delete cascade,
    timeline integer not null,
    next_offset bigint not null,
    primary key (pid, timeline)
);

-- The timeline of this node. pg_control_checkpoint() has that of the last checkpoint, which is too low after a promotion.
create function lakelog.timeline_now() returns integer
    language sql volatile
    return ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer;

-- Records the ends of all partitions if this node's timeline is new. Every session calls it before its first statement on
-- a new timeline, so nothing was appended on that timeline before.
create function lakelog.timeline_begin() returns void
    language plpgsql
as $$
declare
    v_timeline integer := lakelog.timeline_now();
begin
    if exists (select from lakelog.timeline t where t.timeline >= v_timeline) then
        return;
    end if;
    -- A new primary may have no standby yet. If this is lost in another failover, so is everything after it.
    perform set_config('synchronous_commit', 'local', true);
    perform pg_advisory_xact_lock(lakelog.lock_key(-5));
    -- A separate statement: another session may have recorded it while this one waited.
    if exists (select from lakelog.timeline t where t.timeline >= v_timeline) then
        return;
    end if;
    insert into lakelog.timeline (timeline) values (v_timeline);
    insert into lakelog.timeline_end (pid, timeline, next_offset)
    select p.pid, v_timeline, h.next_offset from lakelog.partition p
    cross join lateral (select x.next_offset from lakelog.head x where x.pid = p.pid order by x.version desc limit 1) h;
end
$$;

insert into lakelog.timeline (timeline) values (lakelog.timeline_now());

-- The timelines of the cells when the start or the last target of each partition was read from its log.
alter table lakelog.group_topic add column timelines integer[] not null default '{}';

grant select, insert on lakelog.timeline, lakelog.timeline_end to lakelog_service;
revoke all on function lakelog.timeline_now, lakelog.timeline_begin from public;
grant execute on function lakelog.timeline_now, lakelog.timeline_begin to lakelog_service;
