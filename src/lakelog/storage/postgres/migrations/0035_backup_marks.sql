-- Backup marks: until the end of a mark, no file is swept that was in use when the mark was made.

create table lakelog.backup_mark (
    name text primary key,
    at timestamptz not null default clock_timestamp(),
    until timestamptz not null
);

revoke all on lakelog.backup_mark from public;
grant select, insert, update, delete on lakelog.backup_mark to lakelog_service;
