-- batches_append: gets offsets from the function and inserts the batches into the active hot table, in one statement and one round trip
with decided as materialized (
    select * from lakelog.append($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $19)
), stored as (
    insert into lakelog.hot_{roll} (pid, end_offset, count, bytes_end, appended_at, epoch, payload)
    select d.pid, d.base + b.last, b.count, d.bytes_base + b.bytes_end, d.appended_at, d.epoch, b.payload
    from unnest($14::bigint[], $15::integer[], $16::integer[], $17::bigint[], $18::bytea[])
        as b (pid, last, count, bytes_end, payload)
    join decided d on d.pid = b.pid and d.status = 0
)
select * from decided;

-- batches_append_one: the same for one batch of one partition
with decided as materialized (
    select * from lakelog.append($1::integer, $2::bigint, $3::integer, $4::integer, $5::bigint)
), stored as (
    insert into lakelog.hot_{roll} (pid, end_offset, count, bytes_end, appended_at, epoch, payload)
    select d.pid, d.base + $4, $4, d.bytes_base + $5, d.appended_at, d.epoch, $6::bytea from decided d where d.status = 0
)
select * from decided;

-- batches_append_numbered: the same for one batch of one partition that a producer numbered
with decided as materialized (
    select * from lakelog.append($1::integer, $2::bigint, $3::integer, $4::integer, $5::bigint, $7::bytea, $8::bigint)
), stored as (
    insert into lakelog.hot_{roll} (pid, end_offset, count, bytes_end, appended_at, epoch, payload)
    select d.pid, d.base + $4, $4, d.bytes_base + $5, d.appended_at, d.epoch, $6::bytea from decided d where d.status = 0
)
select * from decided;

-- batches_redrive: appends, and marks the dead letters in the same statement
with decided as materialized (
    select * from lakelog.redrive($19, $20, $21, $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
), stored as (
    insert into lakelog.hot_{roll} (pid, end_offset, count, bytes_end, appended_at, epoch, payload)
    select d.pid, d.base + b.last, b.count, d.bytes_base + b.bytes_end, d.appended_at, d.epoch, b.payload
    from unnest($14::bigint[], $15::integer[], $16::integer[], $17::bigint[], $18::bytea[])
        as b (pid, last, count, bytes_end, payload)
    join decided d on d.pid = b.pid and d.status = 0
)
select * from decided;

-- batches_relay: appends messages of an outbox, and records them in the same statement
with decided as materialized (
    select * from lakelog.relay($19, $20, $21, $22, $23, $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
), stored as (
    insert into lakelog.hot_{roll} (pid, end_offset, count, bytes_end, appended_at, epoch, payload)
    select d.pid, d.base + b.last, b.count, d.bytes_base + b.bytes_end, d.appended_at, d.epoch, b.payload
    from unnest($14::bigint[], $15::integer[], $16::integer[], $17::bigint[], $18::bytea[])
        as b (pid, last, count, bytes_end, payload)
    join decided d on d.pid = b.pid and d.status = 0
)
select * from decided;

-- batches_deliver: appends messages that are due, and removes them from the scheduled messages in the same statement
with decided as materialized (
    select * from lakelog.deliver($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $19)
), stored as (
    insert into lakelog.hot_{roll} (pid, end_offset, count, bytes_end, appended_at, epoch, payload)
    select d.pid, d.base + b.last, b.count, d.bytes_base + b.bytes_end, d.appended_at, d.epoch, b.payload
    from unnest($14::bigint[], $15::integer[], $16::integer[], $17::bigint[], $18::bytea[])
        as b (pid, last, count, bytes_end, payload)
    join decided d on d.pid = b.pid and d.status = 0
)
select * from decided;

-- keys_reserve: returns the reservations that hold
select part, body_hash, partition from lakelog.reserve($1, $2, $3, $4, $5, $6);

-- heads_create: creates heads at offset 0 where there are none
select lakelog.heads_create($1, $2);

-- heads_read: returns the newest head of each partition
select h.* from unnest($1::bigint[]) as a (pid)
cross join lateral (select * from lakelog.head x where x.pid = a.pid order by x.version desc limit 1) h order by h.pid;

-- heads_close: seals or deletes partitions
select lakelog.heads_change($1, $2, 0);

-- epoch_raise: refuses appends with an older epoch from now on
select lakelog.heads_change($1, 0::smallint, $2);

-- log_start_raise: raises the log start, and returns how many messages became unreadable
select pid, removed from lakelog.log_start_raise($1, $2);

-- plans_read: returns the newest heads, and for each offset the verified segment or else the roll that holds it, with the end of its span
select h.*, s.roll as span_roll, s.span_end, g.first_offset, g.end_offset, g.path, g.bytes, g.file_hash, g.content_hash,
       g.first_at, g.last_at, g.epoch as segment_epoch, g.groups
from unnest($1::bigint[], $2::bigint[]) as a (pid, first)
cross join lateral (select * from lakelog.head x where x.pid = a.pid order by x.version desc limit 1) h
left join lateral (
    select c.roll, (
        select n.first_offset from lakelog.span n
        where n.pid = c.pid and n.first_offset > c.first_offset order by n.first_offset limit 1
    ) as span_end
    from lakelog.span c where c.pid = a.pid and c.first_offset <= a.first order by c.first_offset desc limit 1
) s on true
left join lateral (
    select c.* from (
        select * from lakelog.segment x where x.pid = a.pid and x.end_offset > a.first order by x.end_offset limit 1
    ) c
    where c.first_offset <= a.first and c.verified_at is not null
) g on true;

-- append_times_plan: returns, for each readable offset, the first time of the verified segment that holds it, or else its roll
select a.part, s.roll, g.first_at
from unnest($1::bigint[], $2::bigint[]) with ordinality as a (pid, first, part)
cross join lateral (select * from lakelog.head x where x.pid = a.pid order by x.version desc limit 1) h
left join lateral (
    select c.roll from lakelog.span c where c.pid = a.pid and c.first_offset <= a.first order by c.first_offset desc limit 1
) s on true
left join lateral (
    select c.* from (
        select * from lakelog.segment x where x.pid = a.pid and x.end_offset > a.first order by x.end_offset limit 1
    ) c
    where c.first_offset <= a.first and c.verified_at is not null
) g on true
where a.first >= h.log_start and a.first < h.next_offset;

-- append_times_read: returns when the batches of one hot table that hold these offsets were appended
select a.part, b.appended_at
from unnest($1::bigint[], $2::bigint[], $3::integer[]) as a (pid, first, part)
cross join lateral (
    select x.appended_at, x.end_offset - x.count as base from lakelog.hot_{roll} x
    where x.pid = a.pid and x.end_offset > a.first order by x.end_offset limit 1
) b
where b.base <= a.first;

-- batches_read: reads batches of one hot table from the given offsets on, each partition up to the batch that reaches a limit
select a.pid, b.end_offset, b.count, b.bytes_end, b.appended_at, b.epoch, b.payload
from unnest($1::bigint[], $2::bigint[], $3::bigint[]) as a (pid, first, until)
cross join lateral (
    select found.*, sum(count) over run - count as messages_before,
           sum(octet_length(payload)) over run - octet_length(payload) as bytes_before
    from (
        select * from lakelog.hot_{roll}
        where pid = a.pid and end_offset > a.first and end_offset <= a.until order by end_offset limit 1000
    ) found
    window run as (order by end_offset rows unbounded preceding)
) b
where b.messages_before < $4 and b.bytes_before < $5
order by a.pid, b.end_offset;

-- tail_read: reads the newest heads and their batches in one hot table, in one statement where that is enough
select h.*, b.end_offset, b.count as batch_count, b.bytes_end, b.appended_at as batch_appended_at,
       b.epoch as batch_epoch, b.payload
from unnest($1::bigint[], $2::bigint[]) as a (pid, first)
cross join lateral (select * from lakelog.head x where x.pid = a.pid order by x.version desc limit 1) h
left join lateral (
    select found.*, sum(count) over run - count as messages_before,
           sum(octet_length(payload)) over run - octet_length(payload) as bytes_before
    from (
        select * from lakelog.hot_{roll}
        where pid = a.pid and end_offset > a.first and end_offset <= h.next_offset order by end_offset limit 1000
    ) found
    window run as (order by end_offset rows unbounded preceding)
) b on b.messages_before < $3 and b.bytes_before < $4
order by a.pid, b.end_offset;

-- offset_find_by_time: finds the first offset appended at this time or later
select lakelog.offset_search($1, $2, null);

-- offset_find_by_bytes: finds the lowest offset with at most this many bytes of batches after it
select lakelog.offset_search($1, null, $2);

-- roll_begin: creates a new hot table
select lakelog.roll_begin($1);

-- roll_find_active: returns the newest roll, its size and when it was created
select roll, pg_total_relation_size(format('lakelog.%I', 'hot_' || roll)) as bytes, created_at
from lakelog.roll order by roll desc limit 1;

-- roll_list_retired: lists hot tables in which everything is retired
select r.roll from lakelog.roll r where lakelog.roll_is_retired(r.roll, $1) order by r.roll;

-- roll_count: counts hot tables by what keeps them
select count(*) filter (where not k.retired) as messages, count(*) filter (where k.retired and k.staged) as writes,
    count(*) filter (where k.retired and not k.staged) as transactions
from lakelog.roll r
cross join lateral (
    select lakelog.roll_is_retired(r.roll, $1) as retired,
        exists (select from lakelog.staged s where s.roll = r.roll) as staged
) k;

-- roll_list_old: lists hot tables behind a number that are not active, with their size and whether they are kept tables
select roll, kept, pg_total_relation_size(format('lakelog.%I', 'hot_' || roll)) as bytes from lakelog.roll
where roll > $1 and roll < (select max(roll) from lakelog.roll) order by roll limit $2;

-- roll_surviving_bytes: returns how many bytes of a hot table are not retired
select lakelog.roll_surviving_bytes($1, $2);

-- roll_keep: copies some of what survives in a hot table to a kept table, and returns how many bytes
select lakelog.roll_keep($1, $2, $3, $4);

-- roll_drop: drops a hot table, and returns whether it did
select lakelog.roll_drop($1, $2);

-- partitions_remove: removes partitions that were deleted some time ago, oldest first, up to a limit
select lakelog.partitions_remove($1, $2);

-- clock_read: returns the database's time
select clock_timestamp();

-- durability_read: returns the settings under which an acknowledged commit could be lost
select current_setting('fsync') as fsync, current_setting('full_page_writes') as full_page_writes,
       (select reset_val from pg_settings where name = 'synchronous_commit') as synchronous_commit,
       current_setting('synchronous_standby_names') as standbys;

-- timeline_ends_read: returns the lowest end at which a later timeline began, for each partition and timeline
select (
    select min(coalesce(e.next_offset, 0)) from lakelog.timeline t
    left join lakelog.timeline_end e on e.pid = a.pid and e.timeline = t.timeline
    where t.timeline > a.timeline
) as end_offset
from unnest($1::bigint[], $2::integer[]) with ordinality as a (pid, timeline, part) order by a.part;

-- standby_await: writes a record without content, whose commit waits for the synchronous standby
select pg_logical_emit_message(true, 'lakelog', '');

-- lock_slots_read: returns how many locks all transactions can hold together
select current_setting('max_locks_per_transaction')::integer
    * (current_setting('max_connections')::integer + current_setting('max_prepared_transactions')::integer);

-- schema_version_read: returns the newest applied migration
select max(version) from lakelog.migration;
