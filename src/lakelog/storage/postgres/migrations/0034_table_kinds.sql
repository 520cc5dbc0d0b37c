-- A topic can have two Iceberg tables: the table of its messages, and the table of the newest message of each key.

alter table lakelog.iceberg_file drop constraint iceberg_file_incarnation_fkey;
alter table lakelog.iceberg_table drop constraint iceberg_table_pkey;
alter table lakelog.iceberg_table
    add column kind text not null default 'messages',
    add primary key (incarnation, kind);
alter table lakelog.iceberg_file
    add column kind text not null default 'messages',
    add foreign key (incarnation, kind) references lakelog.iceberg_table (incarnation, kind) on delete cascade;

-- As the function of 0033, for one of the tables.
create function lakelog.iceberg_commit(
    p_incarnation bigint, p_kind text, p_version bigint, p_metadata text, p_added text[], p_removed text[], p_oldest bigint
) returns boolean
    language plpgsql
as $$
begin
    perform from lakelog.topic where incarnation = p_incarnation and deleted_at is null for share;
    if not found then
        return false;
    end if;
    if p_version = 0 then
        insert into lakelog.iceberg_table (incarnation, kind, version, metadata)
        values (p_incarnation, p_kind, 1, p_metadata) on conflict do nothing;
    else
        update lakelog.iceberg_table set version = version + 1, metadata = p_metadata, committed_at = clock_timestamp()
        where incarnation = p_incarnation and kind = p_kind and version = p_version;
    end if;
    if not found then
        return exists (
            select from lakelog.iceberg_table
            where incarnation = p_incarnation and kind = p_kind and metadata = p_metadata
        );
    end if;
    insert into lakelog.iceberg_file (path, incarnation, kind, added)
    select path, p_incarnation, p_kind, p_version + 1 from unnest(p_added) as u (path);
    update lakelog.iceberg_file set removed = p_version + 1
    where incarnation = p_incarnation and kind = p_kind and path = any (p_removed) and removed is null;
    delete from lakelog.iceberg_file where incarnation = p_incarnation and kind = p_kind and removed < p_oldest;
    return true;
end
$$;

-- Servers of before call this one.
create or replace function lakelog.iceberg_commit(
    p_incarnation bigint, p_version bigint, p_metadata text, p_added text[], p_removed text[], p_oldest bigint
) returns boolean
    language sql
as $$
    select lakelog.iceberg_commit(p_incarnation, 'messages', p_version, p_metadata, p_added, p_removed, p_oldest)
$$;

revoke all on function lakelog.iceberg_commit(bigint, text, bigint, text, text[], text[], bigint) from public;
grant execute on function lakelog.iceberg_commit(bigint, text, bigint, text, text[], text[], bigint) to lakelog_service;
