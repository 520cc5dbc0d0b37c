-- The keys with which servers sign the calls that they forward to one another. Servers add and delete them.

create table lakelog.server_key (
    secret bytea primary key,
    created_at timestamptz not null
);

revoke all on lakelog.server_key from public;
grant select, insert, delete on lakelog.server_key to lakelog_service;
