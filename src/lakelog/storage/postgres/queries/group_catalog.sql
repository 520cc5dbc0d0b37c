-- group_create: creates a group unless an open one has the name
insert into lakelog.consumer_group (environment_id, name, kind, settings, cell) values ($1, $2, $3, $4, $5)
on conflict (environment_id, name) where deleted_at is null do nothing
returning *;

-- group_find: finds the open group with this name
select * from lakelog.consumer_group where environment_id = $1 and name = $2 and deleted_at is null;

-- group_list: lists the open groups of an environment whose names contain a text by name
select * from lakelog.consumer_group
where environment_id = $1 and name > $2 and deleted_at is null and strpos(name, $4) > 0
order by name limit $3;

-- group_list_retention: lists open groups of all environments that limit their dead letters, by id
select g.*, e.project, e.name as environment from lakelog.consumer_group g
join lakelog.environment e on e.environment_id = g.environment_id
where g.group_id > $1 and g.deleted_at is null and g.settings -> 'dead_letter_retention' <> '{}'
order by g.group_id limit $2;

-- group_alter: writes new settings and pauses unless the group changed since it was read
update lakelog.consumer_group set settings = $3, paused = $4, version = version + 1
where group_id = $1 and version = $2 and deleted_at is null
returning *;

-- group_check_open: checks that the group is open
select 1 from lakelog.consumer_group where group_id = $1 and deleted_at is null;

-- group_delete: records the deletion and deletes the group's topics; maintenance deletes what cells store for it
with deleted as (
    update lakelog.consumer_group set deleted_at = clock_timestamp() where group_id = $1 and deleted_at is null
    returning group_id
), group_topics as (
    delete from lakelog.group_topic r using deleted d where r.group_id = d.group_id
)
select 1 from deleted;

-- group_list_deleted: lists deleted groups that cells may still store rows for
select group_id from lakelog.consumer_group where deleted_at is not null and closed_at is null order by group_id limit $1;

-- group_forget: records that no cell stores anything for these groups, once no server can still write for them
update lakelog.consumer_group set closed_at = clock_timestamp()
where group_id = any ($1::bigint[]) and deleted_at < clock_timestamp() - $2::interval and closed_at is null;

-- group_topic_create: inserts a group's topic unless it exists; the lock waits for a concurrent delete of the group, and then finds no group
with present as materialized (
    select group_id from lakelog.consumer_group where group_id = $1 and deleted_at is null for share
)
insert into lakelog.group_topic (group_id, incarnation, starts, epoch, targets, timelines)
select group_id, $2, $3, $4, $5, $6 from present
on conflict do nothing
returning group_id;

-- group_topic_find: finds where a group started in a topic, and its last seek
select *, epoch as position_epoch from lakelog.group_topic where group_id = $1 and incarnation = $2;

-- group_topic_list: lists the open topics that groups read, by group and name
select t.*, r.group_id, r.starts, r.epoch as position_epoch, r.targets, r.timelines, e.project, e.name as environment
from lakelog.group_topic r
join lakelog.topic t on t.incarnation = r.incarnation and t.deleted_at is null
join lakelog.environment e on e.environment_id = t.environment_id
where r.group_id = any ($1::bigint[]) order by r.group_id, t.name;

-- group_topic_list_by_topic: lists the groups that read a topic, by name
select g.*, r.incarnation, r.starts, r.epoch as position_epoch, r.targets, r.timelines
from lakelog.group_topic r
join lakelog.consumer_group g on g.group_id = r.group_id and g.deleted_at is null
where r.incarnation = $1 order by g.name;

-- group_topic_seek: writes the next position epoch unless another seek came first
update lakelog.group_topic set epoch = epoch + 1, targets = $4, timelines = $5
where group_id = $1 and incarnation = $2 and epoch = $3
returning epoch;

-- server_touch: records that a server is alive, deletes servers not seen for a day, and returns the other live servers, and
-- a row without a server that has the feature level of the installation
with noted as (
    insert into lakelog.server as s (server_id, address, seen_at, level) values ($1, $2, clock_timestamp(), $4)
    on conflict (server_id) do update set address = excluded.address, seen_at = excluded.seen_at, level = excluded.level
), forgotten as (
    delete from lakelog.server where seen_at < clock_timestamp() - interval '1 day' and server_id <> $1
)
select server_id, address, level from lakelog.server
where server_id <> $1 and seen_at > clock_timestamp() - $3::interval
union all select null, null, feature_level from lakelog.installation;

-- server_delete: deletes a server that shuts down
delete from lakelog.server where server_id = $1;

-- server_keys: returns the keys that sign calls between servers, newest first; adds one if the newest is old, and deletes old ones
with added as (
    insert into lakelog.server_key (secret, created_at)
    select $1, clock_timestamp()
    where not exists (select from lakelog.server_key where created_at > clock_timestamp() - $2::interval)
    returning secret, created_at
), forgotten as (
    delete from lakelog.server_key where created_at < clock_timestamp() - $3::interval
)
select secret from (
    select secret, created_at from lakelog.server_key where created_at >= clock_timestamp() - $3::interval
    union all
    select secret, created_at from added
) k order by created_at desc, secret;
