-- The versions of the JSON Schemas of topics. The settings of a topic name the version that its values must match.

create table lakelog.topic_schema (
    incarnation bigint not null,
    version integer not null,
    schema text not null,
    created_at timestamptz not null,
    primary key (incarnation, version)
);

revoke all on lakelog.topic_schema from public;
grant select, insert, delete on lakelog.topic_schema to lakelog_service;
