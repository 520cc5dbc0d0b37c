-- Topics as Iceberg tables: the newest metadata file of each table, and the files of all its versions that are kept. A file of
-- a snapshot that has not expired is never swept, because it is listed here.

create table lakelog.iceberg_table (
    incarnation bigint primary key references lakelog.topic,
    version bigint not null,
    metadata text not null,
    committed_at timestamptz not null default clock_timestamp()
);

-- `added` and `removed` are the versions that first had the file, and first had it no more.
create table lakelog.iceberg_file (
    path text primary key,
    incarnation bigint not null references lakelog.iceberg_table on delete cascade,
    added bigint not null,
    removed bigint
);
create index iceberg_file_removed on lakelog.iceberg_file (incarnation, removed);

-- Swaps the metadata file of a table, and returns whether it is the newest one now. The version decides between two callers.
create function lakelog.iceberg_commit(
    p_incarnation bigint, p_version bigint, p_metadata text, p_added text[], p_removed text[], p_oldest bigint
) returns boolean
    language plpgsql
as $$
begin
    perform from lakelog.topic where incarnation = p_incarnation and deleted_at is null for share;
    if not found then
        return false;
    end if;
    if p_version = 0 then
        insert into lakelog.iceberg_table (incarnation, version, metadata) values (p_incarnation, 1, p_metadata)
        on conflict do nothing;
    else
        update lakelog.iceberg_table set version = version + 1, metadata = p_metadata, committed_at = clock_timestamp()
        where incarnation = p_incarnation and version = p_version;
    end if;
    if not found then
        return exists (select from lakelog.iceberg_table where incarnation = p_incarnation and metadata = p_metadata);
    end if;
    insert into lakelog.iceberg_file (path, incarnation, added)
    select path, p_incarnation, p_version + 1 from unnest(p_added) as u (path);
    update lakelog.iceberg_file set removed = p_version + 1
    where incarnation = p_incarnation and path = any (p_removed) and removed is null;
    delete from lakelog.iceberg_file where incarnation = p_incarnation and removed < p_oldest;
    return true;
end
$$;

revoke all on lakelog.iceberg_table, lakelog.iceberg_file from public;
grant select, insert, update, delete on lakelog.iceberg_table, lakelog.iceberg_file to lakelog_service;
revoke all on function lakelog.iceberg_commit from public;
grant execute on function lakelog.iceberg_commit to lakelog_service;
