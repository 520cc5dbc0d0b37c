-- messages_schedule: stores delayed messages, and returns a status for each
select status, due_at, base_offset from lakelog.schedule($1, $2, $3, $4, $5, $6, $7, $8, $9) order by part;

-- next_due_read: returns the database's time, and when the next message is due
select clock_timestamp() as now, (
    select s.due_at from lakelog.scheduled s
    where s.state = 0 and s.due_at >= coalesce($1::timestamptz, '-infinity') order by s.due_at limit 1
) as due_at;

-- due_read: returns messages that are due, the earliest first, up to the one that reaches a limit
-- (the clock is compared outside of the search, which then reads the index in its order instead of sorting all that is due)
select pid, mark, due_at, scheduled_at, memory, expires_ms, payload
from (
    select f.*, sum(octet_length(f.payload)) over run - octet_length(f.payload) as bytes_before
    from (
        select s.* from lakelog.scheduled s
        where s.state = 0 and s.due_at >= coalesce($1::timestamptz, '-infinity')
        order by s.due_at, s.scheduled_at, s.number limit $2
    ) f
    where f.due_at <= clock_timestamp()
    window run as (order by f.due_at, f.scheduled_at, f.number, f.pid, f.mark rows unbounded preceding)
) chosen
where bytes_before < $3
order by due_at, scheduled_at, number;

-- messages_refuse: records that messages which wait were refused, and returns how many (see message_cancel)
-- (a message that is in the list of rejected messages keeps no content)
with refused as (
    update lakelog.scheduled s
    set state = 2, ended_at = clock_timestamp(), payload = case when $3 then '' else s.payload end
    from unnest($1::bigint[], $2::bytea[]) as k (pid, mark)
    where s.pid = k.pid and s.mark = k.mark and s.state not in (1, 2)
    returning 1
)
select count(*) from refused;

-- message_cancel: cancels a message that waits (the form of the condition excludes partial indexes, which are no help)
update lakelog.scheduled set state = 1, ended_at = clock_timestamp(), payload = ''
where pid = $1 and mark = $2 and state not in (1, 2);

-- message_find: returns the state and the due time of a message, or its offset in the log
select s.state, s.due_at, k.base_offset
from (select $1::bigint as pid, $2::bytea as mark) a
left join lateral (
    select x.state, x.due_at from lakelog.scheduled x where x.pid = a.pid and x.mark = a.mark offset 0
) s on true
left join lateral (
    select max(x.base_offset) as base_offset from lakelog.key_append x
    where x.pid = a.pid and x.key_hash = a.mark and x.expires_at > clock_timestamp()
      and x.slot = any ((select p.used from lakelog.period_slots() p)::smallint[])
) k on true;

-- messages_list: returns messages that wait, by due time, pid and mark, starting after a position
select s.pid, s.mark, s.due_at, s.scheduled_at, s.memory, s.expires_ms, s.payload
from (
    select k.pid, k.mark
    from (select distinct u.pid from unnest($1::bigint[]) as u (pid)) a
    cross join lateral (
        select x.pid, x.mark, x.due_at from lakelog.scheduled x
        where x.pid = a.pid and x.state = 0
          and x.due_at >= $2::timestamptz and (x.due_at, x.pid, x.mark) > ($2::timestamptz, $3::bigint, $4::bytea)
        order by x.due_at, x.mark limit $5
    ) k
    order by k.due_at, k.pid, k.mark limit $5
) chosen
cross join lateral (
    select * from lakelog.scheduled x where x.pid = chosen.pid and x.mark = chosen.mark offset 0
) s
order by s.due_at, s.pid, s.mark;

-- messages_trim: deletes messages that ended some time ago and have no content, up to a limit, and returns how many
with old as (
    delete from lakelog.scheduled where ctid = any (array(
        select s.ctid from lakelog.scheduled s
        where s.state > 0 and s.ended_at < (select clock_timestamp()) - $1::interval and s.payload = ''
        order by s.ended_at limit $2))
    returning 1
)
select count(*) from old;
