-- audit_add: stores a record; the actor without an id is the user of the database
insert into lakelog.audit (environment_id, at, operation, summary, outcome, actor_kind, actor, actor_name, address,
                           request_id, objects, given, before, after)
values ($1, clock_timestamp(), $2, $3, $4, $5, case when $5::text = 'database' then session_user::text else $6::text end,
        $7, $8, $9, $10, $11, $12, $13)
returning *;

-- audit_finish: writes the outcome of a record
update lakelog.audit set outcome = $2, after = coalesce($3::jsonb, after) where number = $1;

-- audit_list: lists records, the newest first
select a.* from lakelog.audit a
where a.environment_id = $1 and a.at >= coalesce($2::timestamptz, '-infinity')
    and a.at <= least(coalesce($3::timestamptz, 'infinity'),
                      coalesce((select b.at from lakelog.audit b where b.number = $4), 'infinity'))
    and ($3::timestamptz is null or a.at < $3)
    and ($4::bigint is null or (a.at, a.number) < ((select b.at from lakelog.audit b where b.number = $4), $4))
    and ($5::text is null or a.operation = $5) and ($6::text is null or a.objects ->> 'group' = $6)
    and ($7::text is null or a.objects ->> 'topic' = $7) and ($8::text is null or a.actor = $8)
order by a.at desc, a.number desc limit $9;

-- mark_list: lists records of changes of some operations that were made, the newest first
select a.* from lakelog.audit a
where a.environment_id = $1 and a.at >= coalesce($2::timestamptz, '-infinity')
    and a.at <= least(coalesce($3::timestamptz, 'infinity'),
                      coalesce((select b.at from lakelog.audit b where b.number = $4), 'infinity'))
    and ($3::timestamptz is null or a.at < $3)
    and ($4::bigint is null or (a.at, a.number) < ((select b.at from lakelog.audit b where b.number = $4), $4))
    and a.operation = any ($5::text[]) and a.outcome = 'done'
    and ($6::text is null or a.objects ->> 'group' = $6
         or not a.objects ? 'group' and ($7::text is not null or not a.objects ? 'topic'))
    and ($7::text is null or a.objects ->> 'topic' = $7 or not a.objects ? 'topic')
order by a.at desc, a.number desc limit $8;

-- audit_trim: deletes some old records, and returns how many
select lakelog.audit_trim($1) as trimmed;
