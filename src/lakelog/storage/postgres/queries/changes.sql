-- changes_read: returns the heads, journals and memberships whose newest row differs from the known one, and the clock
select 0::smallint as kind, a.part, h.log_start, h.next_offset
from unnest($1::bigint[], $2::bigint[], $3::bigint[]) with ordinality as a (pid, log_start, next_offset, part)
cross join lateral (
    select x.log_start, x.next_offset from lakelog.head x where x.pid = a.pid order by x.version desc limit 1
) h
where h.log_start <> a.log_start or h.next_offset <> a.next_offset
union all
select 1, a.part, 0, 0
from unnest($4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[]) with ordinality
    as a (group_id, pid, version, nonce, part)
left join lateral (
    select x.version, x.nonce from lakelog.journal x
    where x.group_id = a.group_id and x.pid = a.pid order by x.version desc limit 1
) n on true
where coalesce(n.version, 0) <> a.version or coalesce(n.nonce, 0) <> a.nonce
union all
select 2, a.part, 0, 0
from unnest($8::bigint[], $9::bigint[]) with ordinality as a (group_id, version, part)
left join lateral (
    select x.version from lakelog.members x where x.group_id = a.group_id order by x.version desc limit 1
) n on true
where coalesce(n.version, 0) <> a.version
union all
select 3, 0, lakelog.ms(clock_timestamp()), 0;

-- versions_read: returns the groups, positions of groups and topics that have another version or are deleted
-- (each `offset 0` keeps a lookup by key from becoming a join with the whole table when that table is tiny)
select 0::smallint as kind, a.part
from unnest($1::bigint[], $2::bigint[]) with ordinality as a (group_id, version, part)
left join lateral (
    select x.version from lakelog.consumer_group x where x.group_id = a.group_id and x.deleted_at is null offset 0
) n on true
where n.version is distinct from a.version
union all
select 1, a.part
from unnest($3::bigint[], $4::bigint[], $5::bigint[]) with ordinality as a (group_id, incarnation, epoch, part)
left join lateral (
    select x.epoch from lakelog.group_topic x where x.group_id = a.group_id and x.incarnation = a.incarnation offset 0
) n on true
where n.epoch is distinct from a.epoch
union all
select 2, a.part
from unnest($6::bigint[], $7::bigint[]) with ordinality as a (incarnation, version, part)
left join lateral (
    select x.version from lakelog.topic x where x.incarnation = a.incarnation and x.deleted_at is null offset 0
) n on true
where n.version is distinct from a.version;

-- changes_announce: notifies listeners of changes
select pg_notify('lakelog_grown', $1);
