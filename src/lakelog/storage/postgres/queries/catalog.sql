-- installation_read: which installation and which of its cells this database is
select installation_id, cell from lakelog.installation;

-- cell_list: the further cells of the installation
select name, cell from lakelog.cell;

-- scope_find: one environment of a project
select environment_id from lakelog.environment where project = $1 and name = $2;

-- scope_create: makes it if it is missing
insert into lakelog.environment (project, name) values ($1, $2) on conflict do nothing;

-- topic_create: a new incarnation, unless an open topic has the name
insert into lakelog.topic (environment_id, name, cells, slot_cells, settings) values ($1, $2, $3, $4, $5)
on conflict (environment_id, name) where deleted_at is null do nothing
returning incarnation, epoch, created_at;

-- topic_find: the open topic of that name
select * from lakelog.topic where environment_id = $1 and name = $2 and deleted_at is null;

-- topic_list: open topics of one environment, by name
select * from lakelog.topic where environment_id = $1 and name > $2 and deleted_at is null order by name limit $3;

-- topic_list_all: open topics of all environments
select t.*, e.project, e.name as environment from lakelog.topic t join lakelog.environment e using (environment_id)
where t.deleted_at is null order by t.incarnation;

-- topic_alter: new settings and further partitions, if nobody altered it since
update lakelog.topic set settings = $3, cells = cells || $4::smallint[], epoch = epoch + (cardinality($4::smallint[]) > 0)::integer
where incarnation = $1 and epoch = $2 and deleted_at is null
returning epoch, cells;

-- topic_is_open: whether it still exists
select 1 from lakelog.topic where incarnation = $1 and deleted_at is null;

-- topic_delete: the decision; its heads are closed afterwards
update lakelog.topic set deleted_at = clock_timestamp() where incarnation = $1 and deleted_at is null returning 1;

-- topic_deleted: deleted topics whose heads may still be open
select t.*, e.project, e.name as environment from lakelog.topic t join lakelog.environment e using (environment_id)
where t.deleted_at is not null and t.closed_at is null order by t.incarnation limit $1;

-- topic_forget: all its heads are closed; nobody reads it
with group_topics as (
    delete from lakelog.group_topic where incarnation = $1
)
update lakelog.topic set closed_at = clock_timestamp() where incarnation = $1 and deleted_at is not null;

-- token_create: only the hash is kept
insert into lakelog.token (token_id, environment_id, name, hash, rights, created_at, expires_at)
values ($1, $2, $3, $4, $5, $6, $7);

-- token_find: whose token that is
select t.*, e.project, e.name as environment from lakelog.token t join lakelog.environment e using (environment_id)
where t.hash = $1 and t.revoked_at is null;

-- token_list: the tokens of one environment
select * from lakelog.token where environment_id = $1 and revoked_at is null order by created_at, token_id;

-- token_revoke: ends a token for good
update lakelog.token set revoked_at = clock_timestamp()
where environment_id = $1 and token_id = $2 and revoked_at is null returning 1;
