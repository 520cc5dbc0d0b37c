-- run_begin: starts a run, or returns the run that is active already
select * from lakelog.pipeline_begin($1, $2, $3, $4, $5, $6, $7);

-- run_touch: records that a run is alive, and its progress
update lakelog.pipeline_run set seen_at = clock_timestamp(), progress = $3
where environment_id = $1 and run_id = $2 and state = 'running'
returning 1;

-- run_end: ends a run that is active
update lakelog.pipeline_run set state = $3, seen_at = clock_timestamp(), ended_at = clock_timestamp(), progress = $4, detail = $5
where environment_id = $1 and run_id = $2 and state = 'running'
returning *;

-- run_find: finds a run
select * from lakelog.pipeline_run where environment_id = $1 and run_id = $2;

-- run_list: lists runs, newest first
select *, state = 'running' and seen_at < clock_timestamp() - $5::interval as is_lost from lakelog.pipeline_run
where environment_id = $1 and ($2::text is null or pipeline = $2) and ($3::text is null or topic = $3)
order by started_at desc, run_id limit $4;
