-- outbox_is_installed: returns whether the database has an outbox
select to_regclass('lakelog_outbox.settings') is not null;

-- settings_read: returns the settings of the outbox, and adopts messages of a restored dump
select s.*, lakelog_outbox.adopt() from lakelog_outbox.settings s;

-- settings_write: creates the settings of the outbox, or changes what is given
insert into lakelog_outbox.settings as s (outbox_id, project, environment, version)
values ($1, coalesce($2::text, 'default'), coalesce($3::text, 'default'), $4)
on conflict (only_row) do update
set project = coalesce($2, s.project), environment = coalesce($3, s.environment), version = excluded.version
returning s.outbox_id, s.project, s.environment;

-- messages_read: returns messages that have become visible
-- (a time that the driver cannot represent would fail the read of all messages, so it becomes one that is refused or past)
select r.snapshot, r.started_at, r.is_last, r.number, r.salt, r.transaction, r.created_at, r.topic, r.key, r.value, r.headers,
       r.content_type, r.correlation_id, r.idempotency_key, r.partition, r.expires_ms,
       case when r.expires_at is not null then least(greatest(r.expires_at, '0001-01-02 00:00Z'), '9999-12-30 00:00Z') end
           as expires_at,
       case when r.deliver_at is not null then least(greatest(r.deliver_at, '0001-01-02 00:00Z'), '9999-12-30 00:00Z') end
           as deliver_at
from lakelog_outbox.read($1, $2, $3, $4, $5, $6) r;

-- slot_rotate: lets new messages go to the next slot
select lakelog_outbox.rotate();

-- slot_empty: empties a slot whose messages are all in the log
select lakelog_outbox.empty($1, $2, $3);

-- oldest_read: returns when the oldest message was published
select min(created_at) from lakelog_outbox.message;
