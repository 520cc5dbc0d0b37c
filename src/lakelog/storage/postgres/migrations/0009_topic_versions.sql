-- A version that every change of a topic raises. Two callers who change settings at once no longer overwrite each other.

alter table lakelog.topic add column version integer not null default 0;
