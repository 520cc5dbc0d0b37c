-- journals_read: returns per request the rows after `after`, or those from the newest snapshot on if some are trimmed or too many,
-- or if `after` has another nonce
-- (each `offset 0` keeps a lookup by key from becoming a join with the whole table when that table is tiny)
select a.part, j.version, j.nonce, j.version = j.snapshot_version as snapshot, j.body,
       lakelog.ms(clock_timestamp()) as clock_ms
from unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[]) with ordinality
    as a (group_id, pid, after, after_nonce, part)
left join lateral (
    select x.version, x.nonce, x.snapshot_version from lakelog.journal x
    where x.group_id = a.group_id and x.pid = a.pid order by x.version desc limit 1
) n on n.version <> a.after or n.nonce <> a.after_nonce
left join lateral (
    select bool_or(x.version > a.after) and not bool_or(x.version = a.after and x.nonce <> a.after_nonce) as follows
    from lakelog.journal x
    where x.group_id = a.group_id and x.pid = a.pid and x.version between a.after and a.after + 1
) next on true
left join lateral (
    select x.version, x.nonce, x.snapshot_version, x.body from lakelog.journal x
    where x.group_id = a.group_id and x.pid = a.pid and x.version <= n.version and x.version >= case
        when next.follows and (n.version - a.after <= $5::bigint or n.snapshot_version <= a.after) then a.after + 1
        else n.snapshot_version
    end offset 0
) j on true
order by a.part, j.version;

-- journals_read_newest: returns the last row of each journal
select a.part, j.version, j.version = j.snapshot_version as snapshot, j.body
from unnest($1::bigint[], $2::bigint[]) with ordinality as a (group_id, pid, part)
cross join lateral (
    select x.version, x.snapshot_version, x.body from lakelog.journal x
    where x.group_id = a.group_id and x.pid = a.pid order by x.version desc limit 1
) j;

-- journals_write: commits entries, and returns a status for each and the clock
select clock_ms, statuses from lakelog.journals_write($1, $2, $3, $4, $5, $6, $7, $8, $9);

-- journals_write_once: commits entries that accept values, and returns also the numbers of values accepted before
select clock_ms, statuses, taken
from lakelog.journals_write_once(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21);

-- once_find: returns the values of which the group has accepted a run in the topic
select lakelog.once_find($1, $2, $3);

-- journals_trim: deletes rows that are no longer needed, up to a limit, and returns where to continue
select trimmed, next_group, next_pid from lakelog.journals_trim_some($1, $2, $3, $4, $5, $6);

-- members_list: returns the newest membership of each group, and when each member was last seen
select a.part, n.version, n.body, lakelog.ms(clock_timestamp()) as clock_ms, h.member_id, lakelog.ms(h.seen_at) as seen_ms
from unnest($1::bigint[]) with ordinality as a (group_id, part)
left join lateral (
    select x.version, x.body from lakelog.members x where x.group_id = a.group_id order by x.version desc limit 1
) n on true
left join lateral (select x.member_id, x.seen_at from lakelog.heartbeat x where x.group_id = a.group_id offset 0) h on true;

-- members_write: writes a membership if its version follows the last one
select lakelog.members_write($1, $2, $3);

-- heartbeats_write: records that these members were seen now, and returns the clock
select lakelog.heartbeats_write($1, $2);

-- heartbeats_drop: deletes the heartbeats of members that left
delete from lakelog.heartbeat where group_id = $1 and member_id = any ($2::text[]);

-- dead_list: lists dead letters by pid, offset and epoch, starting after a key
select d.*, lakelog.ms(d.at) as at_ms
from (
    select k.pid, k.message_offset, k.epoch
    from (select distinct u.pid from unnest($2::bigint[]) as u (pid) where u.pid >= $4::bigint) a
    cross join lateral (
        select x.pid, x.message_offset, x.epoch from lakelog.dead_letter x
        where x.group_id = $1 and x.pid = a.pid and x.state = $3::smallint
          and (x.pid, x.message_offset, x.epoch) > ($4::bigint, $5::bigint, $6::integer)
        order by x.message_offset, x.epoch limit $7
    ) k
    order by 1, 2, 3 limit $7
) chosen
cross join lateral (
    select * from lakelog.dead_letter x
    where x.group_id = $1 and x.pid = chosen.pid and x.message_offset = chosen.message_offset and x.epoch = chosen.epoch
    offset 0
) d
order by d.pid, d.message_offset, d.epoch;

-- dead_list_cluster: lists dead letters with a fingerprint in the same order
select d.*, lakelog.ms(d.at) as at_ms
from (
    select k.pid, k.message_offset, k.epoch
    from (select distinct u.pid from unnest($2::bigint[]) as u (pid) where u.pid >= $4::bigint) a
    cross join lateral (
        select x.pid, x.message_offset, x.epoch from lakelog.dead_letter x
        where x.group_id = $1 and x.pid = a.pid and x.state = $3::smallint and x.fingerprint = $8
          and (x.pid, x.message_offset, x.epoch) > ($4::bigint, $5::bigint, $6::integer)
        order by x.message_offset, x.epoch limit $7
    ) k
    order by 1, 2, 3 limit $7
) chosen
cross join lateral (
    select * from lakelog.dead_letter x
    where x.group_id = $1 and x.pid = chosen.pid and x.message_offset = chosen.message_offset and x.epoch = chosen.epoch
    offset 0
) d
order by d.pid, d.message_offset, d.epoch;

-- dead_count: counts the dead letters in the state dead
select coalesce(sum(c.dead), 0)::bigint from (select distinct u.pid from unnest($2::bigint[]) as u (pid)) a
cross join lateral (
    select count(*) as dead from lakelog.dead_letter x where x.group_id = $1 and x.pid = a.pid and x.state = 0
) c;

-- dead_counts: counts the dead letters in the state dead by group, up to a limit
select a.group_id, c.dead
from (select u.group_id, array_agg(u.pid) as pids from unnest($1::bigint[], $2::bigint[]) as u (group_id, pid) group by 1) a
cross join lateral (
    select count(*) as dead from (
        select 1 from unnest(a.pids) as p (pid)
        cross join lateral (
            select 1 from lakelog.dead_letter x
            where x.group_id = a.group_id and x.pid = p.pid and x.state = 0 limit $3
        ) one
        limit $3
    ) found
) c;

-- dead_find: returns all dead letters of one message
select d.*, lakelog.ms(d.at) as at_ms from lakelog.dead_letter d
where group_id = $1 and pid = $2 and message_offset = $3 order by epoch;

-- dead_discard: discards dead letters, and returns how many were in the state dead
select lakelog.dead_discard($1, $2, $3, $4);

-- dead_purge: deletes finished dead letters that are old enough, up to a limit, and returns how many
-- (the clock is a subquery, because an index cannot search for a value that may change from row to row)
with old as materialized (
    select o.row from unnest($2::bigint[]) as a (pid)
    cross join lateral (
        select x.ctid as row from lakelog.dead_letter x
        where x.group_id = $1 and x.pid = a.pid and x.state > 0 and x.at <= (select clock_timestamp()) - $3::interval
        order by x.at limit $4
    ) o
    limit $4
), deleted as (
    delete from lakelog.dead_letter d using old where d.ctid = old.row and d.state > 0 returning 1
)
select count(*) from deleted;

-- dead_expire: deletes dead letters that exceed the age or the count that their group keeps, up to a limit, and returns how many
-- (both limits remove those that died first, so their number is enough; rows that a redrive or a discard holds are left to the
-- next call, because waiting for them could end in a deadlock)
with old as materialized (
    select o.row from unnest($2::bigint[]) as a (pid)
    cross join (values (false), (true)) as s (finished)
    cross join lateral (
        select count(*) as aged from (
            select from lakelog.dead_letter x
            where x.group_id = $1 and x.pid = a.pid and (x.state > 0) = s.finished
              and x.at <= (select clock_timestamp()) - $3::interval
            limit case when $3::interval is null then 0 else $5::bigint end
        ) found
    ) by_age
    cross join lateral (
        select count(*) - $4::bigint as excess from (
            select from lakelog.dead_letter x
            where x.group_id = $1 and x.pid = a.pid and (x.state > 0) = s.finished
            limit case when $4::bigint is null then 0 else $4 + $5 end
        ) found
    ) by_count
    cross join lateral (
        select x.ctid as row from lakelog.dead_letter x
        where x.group_id = $1 and x.pid = a.pid and (x.state > 0) = s.finished
        order by x.at, x.message_offset, x.epoch
        limit least($5, greatest(by_age.aged, by_count.excess, 0))
        for update skip locked
    ) o
    limit $5
), deleted as (
    delete from lakelog.dead_letter d using old where d.ctid = old.row returning 1
)
select count(*) from deleted;
