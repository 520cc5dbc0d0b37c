-- plans_read: returns the newest heads and the first verified segments that overlap the requested ranges, from one snapshot
select h.*, g.first_offset, g.end_offset, g.path, g.bytes, g.file_hash, g.content_hash, g.first_at, g.last_at,
       g.epoch as segment_epoch, g.groups
from unnest($1::bigint[], $2::bigint[], $3::bigint[]) as a (pid, first, until)
cross join lateral (select * from lakelog.head x where x.pid = a.pid order by x.version desc limit 1) h
left join lateral (
    select s.* from lakelog.segment s
    where s.pid = a.pid and s.end_offset > greatest(a.first, h.log_start) and s.first_offset < a.until
      and s.verified_at is not null
    order by s.end_offset limit $4::bigint
) g on true
order by h.pid, g.end_offset;

-- offset_find_by_time: finds the first offset appended at this time or later, and the segment if the offset is inside one
select o.found, g.pid, g.first_offset, g.end_offset, g.path, g.bytes, g.file_hash, g.content_hash, g.first_at, g.last_at,
       g.epoch as segment_epoch, g.groups
from (select coalesce(lakelog.offset_search($1, $2, null), 0) as found offset 0) o
left join lateral (
    select s.* from (
        select * from lakelog.segment x where x.pid = $1 and x.end_offset > o.found order by x.end_offset limit 1
    ) s
    where s.first_offset <= o.found and s.verified_at is not null and s.first_at < $2 and s.last_at >= $2
) g on true;

-- tierable_list: lists ranges of whole hot batches that may become segments
select pid, first_offset, end_offset, bytes from lakelog.tierable($1, $2, $3, $4, $5);

-- segments_register: registers segments and returns a status for each
select part, status, reason from lakelog.segments_register($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11);

-- segments_replace: replaces verified segments by others of the same range, and returns a status
select status, reason from lakelog.segments_replace($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15);

-- segments_verify: marks segments as verified; readers use them from now on
with asked as (
    select * from unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[]) with ordinality as u (pid, first, "end", path, part)
), changed as (
    update lakelog.segment s set verified_at = coalesce(s.verified_at, clock_timestamp())
    from asked a
    where s.pid = a.pid and s.end_offset = a."end" and s.first_offset = a.first and s.path = a.path
    returning a.part
)
select a.part in (select part from changed) as done from asked a order by a.part;

-- segments_unregister: removes segments that are not verified
with asked as (
    select * from unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[]) with ordinality as u (pid, first, "end", path, part)
), gone as (
    delete from lakelog.segment s using asked a
    where s.pid = a.pid and s.end_offset = a."end" and s.first_offset = a.first and s.path = a.path and s.verified_at is null
    returning a.part
)
select a.part in (select part from gone) or not exists (
    select from lakelog.segment s where s.pid = a.pid and s.end_offset = a."end" and s.path = a.path
) as done
from asked a order by a.part;

-- segments_list_unverified: lists registered segments that are not verified
select s.*, s.epoch as segment_epoch from unnest($1::bigint[]) as a (pid)
join lakelog.segment s on s.pid = a.pid and s.verified_at is null
order by s.pid, s.end_offset;

-- paths_find: returns those of the paths that are registered
select path from lakelog.segment where path = any ($1::text[]);

-- segments_trim: deletes segments below the log start, in some partitions, and returns where to continue
select next_after, trimmed from lakelog.segments_trim_some($1, $2);

-- orphans_record: records new orphans, and returns the paths that were recorded before the given age and all backup marks
with noted as (
    insert into lakelog.orphan (path) select distinct unnest($1::text[]) order by 1 on conflict do nothing
)
select path from lakelog.orphan
where path = any ($1::text[]) and first_seen_at <= clock_timestamp() - $2::interval
  and first_seen_at < (select coalesce(min(at), 'infinity') from lakelog.backup_mark where until > clock_timestamp());

-- backup_mark_create: makes a mark, and deletes marks that have ended
with ended as (delete from lakelog.backup_mark where until <= clock_timestamp() and name <> $1),
now as materialized (select clock_timestamp() as at)
insert into lakelog.backup_mark as m (name, at, until) select $1, now.at, now.at + $2::interval from now
on conflict (name) do update set at = excluded.at, until = excluded.until where m.until <= clock_timestamp()
returning name, at, until;

-- backup_mark_list: lists marks that have not ended, the oldest first
select name, at, until from lakelog.backup_mark where until > clock_timestamp() order by at, name;

-- backup_mark_end: deletes a mark
delete from lakelog.backup_mark where name = $1 returning name;

-- orphans_list_old: lists orphans first seen before the given age
select path from lakelog.orphan where path = any ($1::text[]) and first_seen_at <= clock_timestamp() - $2::interval;

-- orphans_forget: deletes orphans whose file is gone or registered
delete from lakelog.orphan where path = any ($1::text[]);

-- segments_load: appends the verified segments of a load to partitions, and returns a status for each
select part, status, reason, base, stop, print
from lakelog.segments_load($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15);

-- loaded_list: lists the decisions about a load, by partition
select l.* from unnest($2::bigint[]) as a (pid) join lakelog.loaded l on l.pid = a.pid and l.name = $1 order by l.pid;
