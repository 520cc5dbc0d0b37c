-- installation_read: returns the installation's id and feature level, and the number of this cell
select installation_id, feature_level, cell from lakelog.installation;

-- cell_list: lists the additional cells of the installation
select name, cell from lakelog.cell;

-- scope_find: finds an environment of a project
select environment_id from lakelog.environment where project = $1 and name = $2;

-- scope_create: creates an environment unless it exists
insert into lakelog.environment (project, name) values ($1, $2) on conflict do nothing;

-- topic_create: creates a new incarnation unless an open topic has the name, with its schema if it has one
with created as (
    insert into lakelog.topic (environment_id, name, cells, slot_cells, settings) values ($1, $2, $3, $4, $5)
    on conflict (environment_id, name) where deleted_at is null do nothing
    returning incarnation, epoch, created_at
), versions as (
    insert into lakelog.topic_schema (incarnation, version, schema, created_at)
    select incarnation, $6::integer, $7::text, clock_timestamp() from created where $7::text is not null
)
select incarnation, epoch, created_at from created;

-- topic_find: finds the open topic with this name
select * from lakelog.topic where environment_id = $1 and name = $2 and deleted_at is null;

-- inventory_read: returns the names of the open topics and groups of an environment, and the number of partitions
select array(select t.name from lakelog.topic t where t.environment_id = $1 and t.deleted_at is null order by 1) as topics,
       array(
           select g.name from lakelog.consumer_group g where g.environment_id = $1 and g.deleted_at is null order by 1
       ) as groups,
       (
           select coalesce(sum(cardinality(t.cells)), 0) from lakelog.topic t
           where t.environment_id = $1 and t.deleted_at is null
       ) as partitions;

-- topic_list: lists the open topics of an environment by name
select * from lakelog.topic where environment_id = $1 and name > $2 and deleted_at is null order by name limit $3;

-- topic_list_all: lists the open topics of all environments
select t.*, e.project, e.name as environment from lakelog.topic t join lakelog.environment e using (environment_id)
where t.deleted_at is null order by t.incarnation;

-- topic_list_some: lists topics by incarnation, also deleted ones
select t.*, e.project, e.name as environment from lakelog.topic t join lakelog.environment e using (environment_id)
where t.incarnation = any ($1::bigint[]);

-- topic_newest: returns the newest incarnation that was given to a topic
select case when is_called then last_value else 0 end as newest from lakelog.topic_incarnation_seq;

-- topic_skip: gives later topics incarnations above this one
select setval('lakelog.topic_incarnation_seq', greatest($1::bigint, last_value)) from lakelog.topic_incarnation_seq;

-- topic_alter: writes new settings, partitions and a new schema unless the topic changed since it was read
with altered as (
    update lakelog.topic set settings = $3, cells = cells || $4::smallint[], version = version + 1,
        epoch = epoch + (cardinality($4::smallint[]) > 0)::integer
    where incarnation = $1 and version = $2 and deleted_at is null
    returning incarnation, epoch, version, cells
), versions as (
    insert into lakelog.topic_schema (incarnation, version, schema, created_at)
    select incarnation, $5::integer, $6::text, clock_timestamp() from altered where $6::text is not null
)
select epoch, version, cells from altered;

-- schema_find: finds one version of a topic's schema
select schema, created_at from lakelog.topic_schema where incarnation = $1 and version = $2;

-- schema_versions: lists the newest versions of a topic's schema
select version, created_at from lakelog.topic_schema where incarnation = $1 order by version desc limit $2;

-- topic_check_open: checks that the topic is open
select 1 from lakelog.topic where incarnation = $1 and deleted_at is null;

-- topic_delete: records the deletion; the caller closes the heads afterwards
update lakelog.topic set deleted_at = clock_timestamp() where incarnation = $1 and deleted_at is null returning 1;

-- topic_list_deleted: lists deleted topics whose heads may still be open
select t.*, e.project, e.name as environment from lakelog.topic t join lakelog.environment e using (environment_id)
where t.deleted_at is not null and t.closed_at is null order by t.incarnation limit $1;

-- topic_forget: records that all heads are closed, and removes the topic's schemas, its table and its groups' positions
with group_topics as (
    delete from lakelog.group_topic where incarnation = $1
), versions as (
    delete from lakelog.topic_schema where incarnation = $1
), tables as (
    delete from lakelog.iceberg_table where incarnation = $1
)
update lakelog.topic set closed_at = clock_timestamp() where incarnation = $1 and deleted_at is not null;

-- token_create: stores a token, of which only the hash is kept; with a child, deletes children that have expired
with expired as (
    delete from lakelog.token where $8::text is not null and parent_id is not null and expires_at < clock_timestamp()
)
insert into lakelog.token (token_id, environment_id, name, hash, rights, created_at, expires_at, parent_id)
values ($1, $2, $3, $4, $5, $6, $7, $8)
returning token_id;

-- tokens_find: finds the tokens with these hashes, and their environments
select t.*, e.project, e.name as environment from lakelog.token t join lakelog.environment e using (environment_id)
left join lakelog.token p on p.token_id = t.parent_id
where t.hash = any($1::bytea[]) and t.revoked_at is null and p.revoked_at is null;

-- token_list: lists the tokens of an environment, without expired children
select t.* from lakelog.token t left join lakelog.token p on p.token_id = t.parent_id
where t.environment_id = $1 and t.revoked_at is null and p.revoked_at is null
    and (t.parent_id is null or t.expires_at > clock_timestamp())
order by t.created_at, t.token_id;

-- token_revoke: revokes a token permanently
update lakelog.token set revoked_at = clock_timestamp()
where environment_id = $1 and token_id = $2 and revoked_at is null returning 1;
