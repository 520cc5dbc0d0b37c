-- group_create: nothing if one of that name is open
insert into lakelog.consumer_group (environment_id, name, kind, settings, cell) values ($1, $2, $3, $4, $5)
on conflict (environment_id, name) where deleted_at is null do nothing
returning *;

-- group_find: the open group of that name
select * from lakelog.consumer_group where environment_id = $1 and name = $2 and deleted_at is null;

-- group_list: open groups of one environment, by name
select * from lakelog.consumer_group where environment_id = $1 and name > $2 and deleted_at is null
order by name limit $3;

-- group_alter: new settings and pauses, if nobody altered it since
update lakelog.consumer_group set settings = $3, paused = $4, version = version + 1
where group_id = $1 and version = $2 and deleted_at is null
returning *;

-- group_is_open: whether it still exists
select 1 from lakelog.consumer_group where group_id = $1 and deleted_at is null;

-- group_delete: the decision, and the topics that it reads; what cells keep for it goes afterwards
with deleted as (
    update lakelog.consumer_group set deleted_at = clock_timestamp() where group_id = $1 and deleted_at is null
    returning group_id
), group_topics as (
    delete from lakelog.group_topic r using deleted d where r.group_id = d.group_id
)
select 1 from deleted;

-- group_deleted: deleted groups of which cells may still hold something
select group_id from lakelog.consumer_group where deleted_at is not null and closed_at is null order by group_id limit $1;

-- group_forget: cells hold nothing of them any more, and nobody who missed the delete can still write
update lakelog.consumer_group set closed_at = clock_timestamp()
where group_id = any ($1::bigint[]) and deleted_at < clock_timestamp() - $2::interval and closed_at is null;

-- group_topic_create: nothing if there is one. The lock waits for a delete of the group, and then finds no group.
with present as materialized (
    select group_id from lakelog.consumer_group where group_id = $1 and deleted_at is null for share
)
insert into lakelog.group_topic (group_id, incarnation, starts, epoch, targets)
select group_id, $2, $3, $4, $5 from present
on conflict do nothing;

-- group_topic_find: what the group decided about the topic
select *, epoch as position_epoch from lakelog.group_topic where group_id = $1 and incarnation = $2;

-- group_topic_list: what groups read, of open topics, by group and name
select t.*, r.group_id, r.starts, r.epoch as position_epoch, r.targets, e.project, e.name as environment
from lakelog.group_topic r
join lakelog.topic t on t.incarnation = r.incarnation and t.deleted_at is null
join lakelog.environment e on e.environment_id = t.environment_id
where r.group_id = any ($1::bigint[]) order by r.group_id, t.name;

-- group_topic_list_by_topic: the groups that read a topic, by name
select g.*, r.incarnation, r.starts, r.epoch as position_epoch, r.targets
from lakelog.group_topic r
join lakelog.consumer_group g on g.group_id = r.group_id and g.deleted_at is null
where r.incarnation = $1 order by g.name;

-- group_topic_seek: the next epoch, if nobody sought since
update lakelog.group_topic set epoch = epoch + 1, targets = $4 where group_id = $1 and incarnation = $2 and epoch = $3
returning epoch;

-- server_seen: notes a server, forgets those of another day, and gives the others that are alive
with noted as (
    insert into lakelog.server as s (server_id, address, seen_at) values ($1, $2, clock_timestamp())
    on conflict (server_id) do update set address = excluded.address, seen_at = excluded.seen_at
), forgotten as (
    delete from lakelog.server where seen_at < clock_timestamp() - interval '1 day' and server_id <> $1
)
select server_id, address from lakelog.server
where server_id <> $1 and seen_at > clock_timestamp() - $3::interval;

-- server_gone: a server that ends
delete from lakelog.server where server_id = $1;
