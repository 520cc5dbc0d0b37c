-- batches_stage: records the batches and stores the payloads of new ones in the roll's hot table; returns the active roll
with given as materialized (
    select u.*, octet_length(u.payload) as bytes
    from unnest($1::bigint[], $2::text[], $3::text[], $4::integer[], $5::integer[], $6::integer[], $7::bytea[])
        as u (pid, write_id, attempt, number, count, epoch, payload)
), noted as (
    insert into lakelog.staged (pid, write_id, attempt, number, count, bytes, epoch, roll, slot)
    select g.pid, g.write_id, g.attempt, g.number, g.count, g.bytes, g.epoch, {roll}, nextval('lakelog.staged_slot')
    from given g order by 1, 2, 3, 4
    on conflict do nothing
    returning pid, write_id, attempt, number, slot
), stored as (
    insert into lakelog.hot_{roll} (pid, end_offset, count, bytes_end, appended_at, epoch, payload)
    select -n.slot, 0, g.count, 0, clock_timestamp(), g.epoch, g.payload
    from noted n join given g using (pid, write_id, attempt, number)
)
select max(roll) as roll from lakelog.roll;

-- roll_find_newest: returns the active roll
select max(roll) as roll from lakelog.roll;

-- staged_count: counts the messages that these attempts staged for a write in the partitions
select coalesce(sum(c.messages), 0)::bigint from unnest($1::bigint[]) as a (pid)
cross join lateral (
    select sum(s.count) as messages from lakelog.staged s
    where s.pid = a.pid and s.write_id = $2 and s.attempt = any ($3::text[])
) c;

-- staged_pids: lists the partitions of a topic that have staged batches of a write
select distinct s.pid from lakelog.staged s
where s.pid >= $1::bigint << 16 and s.pid < ($1::bigint + 1) << 16 and s.write_id = $2 order by 1;

-- staged_parts: counts the messages of a write that each attempt staged for each partition of a topic
select s.pid, s.attempt, sum(s.count)::bigint as count from lakelog.staged s
where s.pid >= $1::bigint << 16 and s.pid < ($1::bigint + 1) << 16 and s.write_id = $2 group by 1, 2 order by 1, 2;

-- staged_read: lists the next batches that an attempt staged for a partition, up to a number of bytes
select b.number, b.count, b.epoch, b.roll, b.slot from (
    select s.*, sum(s.bytes) over (order by s.number) as size, row_number() over (order by s.number) as place
    from (
        select * from lakelog.staged
        where pid = $1 and write_id = $2 and attempt = $3 and number > $4::integer order by number limit $6
    ) s
) b
where b.place = 1 or b.size <= $5::bigint order by b.number;

-- staged_payloads: returns the payloads of staged batches, by the negative numbers of their slots
select pid, payload from lakelog.hot_{roll} where pid = any ($1::bigint[]);

-- write_promote: moves a partition's share of a write into its log
select status, base, count, appended_at from lakelog.promote($1, $2, $3);

-- staged_discard: deletes some of the batches that are still staged for a write that is decided, and returns how many
select lakelog.staged_discard($1, $2, $3);

-- staged_list: lists writes that were not staged to for the given time, with their age
select s.pid >> 16 as incarnation, s.write_id, clock_timestamp() - max(s.staged_at) as age
from lakelog.staged s group by 1, 2
having max(s.staged_at) <= clock_timestamp() - $1::interval order by 3 desc limit $2;

-- promoted_trim: deletes old marks of promoted writes
with doomed as (
    delete from lakelog.promoted where ctid = any (array(
        select ctid from lakelog.promoted where at < now() - $1::interval limit $2))
    returning 1
)
select count(*) from doomed;

-- decision_create: records a decision, if the topic is open at this epoch and no decision exists
insert into lakelog.decision (incarnation, write_id, writer, number, attempts, attempts_hash, count)
select t.incarnation, $2, $3, $4::bigint, $5::text[], $6::bytea, $7::bigint from lakelog.topic t
where t.incarnation = $1 and t.epoch = $8::integer and t.deleted_at is null for share
on conflict do nothing;

-- decision_abandon: records that a write is abandoned, if no decision exists
insert into lakelog.decision (incarnation, write_id, writer, number, attempts, attempts_hash, count)
values ($1, $2, $3, $4, '{}', '', 0) on conflict do nothing;

-- decision_find: finds the decision of a write
select * from lakelog.decision where incarnation = $1 and write_id = $2;

-- decision_finish: records that everything is promoted, and clears the attempts
update lakelog.decision set finished_at = clock_timestamp(), attempts = '{}'
where incarnation = $1 and write_id = $2 and finished_at is null;

-- decision_trim: deletes old finished decisions; the newest of each writer in a topic that exists is kept for longer
with doomed as (
    delete from lakelog.decision where ctid = any (array(
        select d.ctid from lakelog.decision d
        where d.finished_at < (select clock_timestamp()) - $1::interval and (
            exists (
                select from lakelog.decision n
                where n.incarnation = d.incarnation and n.writer = d.writer and n.number > d.number
            ) or not exists (select from lakelog.topic t where t.incarnation = d.incarnation and t.closed_at is null)
            or d.finished_at < (select clock_timestamp()) - $3::interval
        )
        order by d.finished_at limit $2))
    returning 1
)
select count(*) from doomed;
