-- period_empty: empties one table of the oldest period if all its rows have expired; returns whether it was the last one, or null
select lakelog.period_empty();

-- period_begin: begins a new period if the active one is older than this, and returns whether it did
select lakelog.period_begin($1);

-- keys_trim_long: deletes some expired keys that are remembered for longer than a period
select appends, reservations from lakelog.keys_trim_long($1);

-- unslotted_check: returns whether rows from before the tables by period are left
select lakelog.unslotted_check();

-- heads_trim: deletes all head rows except the newest, in some partitions, and returns where to continue
select next_after, trimmed from lakelog.heads_trim_some($1, $2, $3);

-- producers_trim_superseded: deletes all rows of a producer but the newest, in some partitions, and returns where to continue
select next_after, trimmed from lakelog.producers_trim_superseded($1, $2, $3);

-- producers_trim: deletes rows without a slot: all but the last five batches of active producers, and all of inactive ones
select next_after, trimmed from lakelog.producers_trim_some($1, $2, $3, $4);

-- keys_trim: deletes some old idempotency keys without a slot, except those of topics with their own memory; uses `now` because no index
-- helps with a clock that advances within the statement
with reservations as (
    delete from lakelog.reservation where ctid = any (array(
        select ctid from lakelog.reservation where at < now() - $1::interval - $4::interval and incarnation <> all ($2::bigint[]) limit $3))
    and at < now() - $1::interval - $4::interval -- again: a call may use the row at the same time
    returning 1
), appends as (
    delete from lakelog.keyed_append where ctid = any (array(
        select ctid from lakelog.keyed_append where at < now() - $1::interval and pid >> 16 <> all ($2::bigint[]) limit $3))
    returning 1
)
select (select count(*) from reservations) as reservations, (select count(*) from appends) as appends;

-- keys_trim_topic: deletes some old idempotency keys without a slot of a topic with its own memory
with reservations as (
    delete from lakelog.reservation where ctid = any (array(
        select ctid from lakelog.reservation where at < now() - $1::interval - $4::interval and incarnation = $2::bigint limit $3))
    and at < now() - $1::interval - $4::interval
    returning 1
), appends as (
    delete from lakelog.keyed_append where ctid = any (array(
        select ctid from lakelog.keyed_append
        where at < now() - $1::interval and pid >= $2::bigint << 16 and pid < ($2::bigint + 1) << 16 limit $3))
    returning 1
)
select (select count(*) from reservations) as reservations, (select count(*) from appends) as appends;
