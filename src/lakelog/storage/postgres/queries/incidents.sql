-- journals_write_noted: commits entries with incidents and with the fingerprints of dead letters
select clock_ms, statuses, taken
from lakelog.journals_write_noted(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26,
    $27, $28, $29, $30, $31, $32, $33, $34, $35);

-- incidents_read: returns the incidents of some messages of a partition, the oldest first
select i.* from unnest($2::bigint[]) as a (message_offset)
cross join lateral (
    select * from lakelog.incident x where x.pid = $1 and x.message_offset = a.message_offset
    order by x.at_ms desc, x.deliveries desc limit $3
) i
order by i.at_ms, i.message_offset, i.deliveries, i.group_id;

-- failures_count: counts the failures of groups between two times by group and topic (a last failure that leaves no dead letter
-- is stored as discarded, with the fingerprint of its reason; a message that its owner discarded has none)
select a.group_id, f.incarnation, f.failed from unnest($1::bigint[]) as a (group_id)
cross join lateral (
    select x.pid >> $4::integer as incarnation, sum(1 + x.left_out)::bigint as failed from lakelog.incident x
    where x.group_id = a.group_id and x.at_ms >= $2 and x.at_ms < $3
        and (x.kind between 1 and 4 or x.kind = 6 and x.fingerprint <> 0)
    group by 1
) f;

-- incidents_trim: creates the tables of this day and the next, drops old ones, and returns how many it dropped
select lakelog.history_extend('incident', lakelog.ms(clock_timestamp())) as dropped;

-- dead_clusters: returns the largest clusters of dead letters, or the chosen one, by topic, each with its newest dead letter
-- (each partition is counted in the order of its index, and the newest dead letter is looked up for the result only, because
-- that takes a third of the time of one aggregate over all columns)
with parts as materialized (
    select a.pid, x.* from (select distinct u.pid from unnest($2::bigint[]) as u (pid)) a
    cross join lateral (
        select d.fingerprint, count(*) as letters, min(d.at) as first_at, max(d.at) as last_at from lakelog.dead_letter d
        where d.group_id = $1 and d.pid = a.pid and d.state = 0 {chosen} group by 1
    ) x
), clusters as materialized (
    select p.fingerprint, sum(p.letters)::bigint as letters, min(p.first_at) as first_at, max(p.last_at) as last_at,
           (array_agg(p.pid order by p.last_at desc, p.pid desc))[1] as pid
    from parts p group by 1, p.pid >> $4::integer order by 2 desc, 4 desc, 1 limit $3
)
select c.fingerprint, c.letters, lakelog.ms(c.first_at) as first_ms, lakelog.ms(c.last_at) as last_ms, c.pid,
       n.message_offset, n.reason, n.traceback
from clusters c
cross join lateral (
    select d.message_offset, d.reason, d.traceback from (
        select x.message_offset, x.epoch from lakelog.dead_letter x
        where x.group_id = $1 and x.pid = c.pid and x.state = 0 and x.fingerprint = c.fingerprint and x.at = c.last_at
        union all
        select x.message_offset, x.epoch from lakelog.dead_letter x
        where c.fingerprint is null
          and x.group_id = $1 and x.pid = c.pid and x.state = 0 and x.fingerprint is null and x.at = c.last_at
    ) k
    join lakelog.dead_letter d on d.group_id = $1 and d.pid = c.pid and d.message_offset = k.message_offset
        and d.epoch = k.epoch
    order by d.message_offset desc, d.epoch desc limit 1
) n
order by c.letters desc, c.last_at desc, c.fingerprint;

-- dead_chain: returns the dead letters of a message and of the messages that were redriven for it, without the messages
with recursive chain (group_id, message_offset, depth) as (
    select g.group_id, o.message_offset, 0
    from unnest($1::bigint[]) as g (group_id) cross join unnest($3::bigint[]) as o (message_offset)
    union
    select d.group_id, d.redriven_to, c.depth + 1 from chain c
    join lakelog.dead_letter d on d.group_id = c.group_id and d.pid = $2 and d.message_offset = c.message_offset
    where d.redriven_to is not null and c.depth < $4::integer
)
select d.group_id, d.pid, d.message_offset, d.epoch, d.state, d.deliveries, d.failures, d.reason, d.owner,
       null::bytea as payload, d.redriven_to, d.traceback, d.fingerprint, lakelog.ms(d.at) as at_ms
from (select distinct x.group_id, x.message_offset from chain x) c
join lakelog.dead_letter d on d.group_id = c.group_id and d.pid = $2 and d.message_offset = c.message_offset
order by d.group_id, d.at, d.message_offset;
