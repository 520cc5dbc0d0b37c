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

-- failures_count: counts the failures of groups between two times by group and topic
select a.group_id, f.incarnation, f.failed from unnest($1::bigint[]) as a (group_id)
cross join lateral (
    select x.pid >> $4::integer as incarnation, sum(1 + x.left_out)::bigint as failed from lakelog.incident x
    where x.group_id = a.group_id and x.at_ms >= $2 and x.at_ms < $3 and x.kind between 1 and 4
    group by 1
) f;

-- incidents_trim: creates the tables of this day and the next, drops old ones, and returns how many it dropped
select lakelog.history_extend('incident', lakelog.ms(clock_timestamp())) as dropped;

-- dead_clusters: returns the largest clusters of dead letters by topic, each with its newest dead letter
select c.fingerprint, c.letters, c.first_ms, c.last_ms, d.pid, d.message_offset, d.reason, d.traceback
from (
    select x.fingerprint, count(*) as letters, lakelog.ms(min(x.at)) as first_ms, lakelog.ms(max(x.at)) as last_ms,
           max(array[lakelog.ms(x.at), x.pid, x.message_offset, x.epoch::bigint]) as newest
    from lakelog.dead_letter x
    where x.group_id = $1 and x.pid = any ($2::bigint[]) and x.state = 0
    group by 1, x.pid >> $4::integer order by 2 desc, 4 desc, 1 limit $3
) c
join lakelog.dead_letter d on d.group_id = $1 and d.pid = c.newest[2] and d.message_offset = c.newest[3]
    and d.epoch = c.newest[4]::integer
order by c.letters desc, c.last_ms desc, c.fingerprint;

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
