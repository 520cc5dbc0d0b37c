-- table_read: reads the newest version of a table, and the segments in it
select t.version, t.metadata, array(
    select f.path from lakelog.iceberg_file f
    where f.incarnation = t.incarnation and f.kind = t.kind and f.removed is null and f.path like '%.parquet'
) as segments
from lakelog.iceberg_table t where t.incarnation = $1 and t.kind = $2;

-- table_list: lists the tables of the open topics of an environment
select o.name, t.kind, t.version, t.metadata from lakelog.topic o join lakelog.iceberg_table t using (incarnation)
where o.environment_id = $1 and o.deleted_at is null and ($2::text is null or o.name = $2)
order by o.name, t.kind desc;

-- table_commit: makes a metadata file the newest one if the version is the expected one
select 1 where lakelog.iceberg_commit($1, $2, $3, $4, $5, $6, $7);

-- table_paths_find: returns those of the paths that belong to a version that is kept
select path from lakelog.iceberg_file where path = any ($1::text[]);
