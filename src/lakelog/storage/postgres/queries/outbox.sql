-- relay_epoch_raise: gives an outbox a new relay, when the statements of earlier ones have ended
insert into lakelog.outbox_relay as o (outbox_id, environment_id, epoch) values ($1, $2, 1)
on conflict (outbox_id) do update set epoch = o.epoch + 1, environment_id = excluded.environment_id
returning epoch;

-- messages_reject: stores rejected messages of an outbox, and records them as relayed
select lakelog.outbox_reject($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11);

-- messages_record: records messages of an outbox that were appended in another way, and returns whether it did
with relay as materialized (
    select lakelog.relay_is_current($1, $2) as is_current
), recorded as (
    insert into lakelog.relayed (outbox_id, pid, base_offset, numbers, salts, relayed_at, span)
    select $1, m.pid, m.message_offset, array[m.number], array[m.salt], clock_timestamp(),
           int8range(m.number, m.number, '[]')
    from unnest($3::bigint[], $4::integer[], $5::bigint[], $6::bigint[]) as m (number, salt, pid, message_offset)
    where (select is_current from relay)
)
select is_current from relay;

-- relayed_find: returns the positions of those of the messages that are recorded
select m.number, m.salt, r.pid, r.base_offset + m.place - 1 as message_offset
from lakelog.relayed r
cross join lateral unnest(r.numbers, r.salts) with ordinality as m (number, salt, place)
join unnest($2::bigint[], $3::integer[]) as a (number, salt) on a.number = m.number and a.salt = m.salt
where r.outbox_id = $1 and r.span && int8range($4, $5, '[]');

-- outbox_environment_find: returns the environment of an outbox
select environment_id from lakelog.outbox_relay where outbox_id = $1;

-- relayed_trim: deletes records of messages that were appended before a time, the oldest first, up to a limit
delete from lakelog.relayed where ctid = any (array(
    select r.ctid from lakelog.relayed r
    where r.outbox_id = $1 and r.relayed_at < (select least($2::timestamptz, clock_timestamp() - $3::interval))
    order by r.relayed_at limit $4
))
returning 1;

-- rejected_add: stores rejected messages; one that is in the list already gets the new code and reason
insert into lakelog.rejected_message (environment_id, message_id, source, topic, code, reason, partition, payload, rejected_at)
select $1, m.message_id, m.source, m.topic, m.code, m.reason, m.partition, m.payload, clock_timestamp()
from unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::integer[], $8::bytea[]) with ordinality
    as m (message_id, source, topic, code, reason, partition, payload, place)
order by m.place
on conflict (environment_id, message_id) do update set code = excluded.code, reason = excluded.reason;

-- rejected_list: lists rejected messages by number, of one topic or of all
select * from lakelog.rejected_message
where environment_id = $1 and ($2::text is null or topic = $2) and number > $3 order by number limit $4;

-- rejected_find: returns the rejected messages with these ids
select * from lakelog.rejected_message where environment_id = $1 and message_id = any ($2::text[]) order by number;

-- rejected_remove: removes rejected messages
delete from lakelog.rejected_message where environment_id = $1 and message_id = any ($2::text[]) returning 1;
