-- Pipeline runs: which process moves which messages, and its progress. Only the default cell's table is used.

create table lakelog.pipeline_run (
    run_id text primary key,
    environment_id bigint not null references lakelog.environment,
    pipeline text not null,
    topic text not null,
    host text not null,
    state text not null default 'running' check (state in ('running', 'done', 'failed', 'lost')),
    started_at timestamptz not null default clock_timestamp(),
    seen_at timestamptz not null default clock_timestamp(),
    ended_at timestamptz,
    progress jsonb not null default '{}',
    detail text not null default ''
);
-- Elects the run: one run per pipeline and topic is active at a time.
create unique index pipeline_run_alive on lakelog.pipeline_run (environment_id, pipeline, topic) where state = 'running';
create index pipeline_run_newest on lakelog.pipeline_run (environment_id, started_at desc);

-- Returns the active run: this one, or the one that started first. Each statement sees what others committed before it.
create function lakelog.pipeline_begin(
    p_environment bigint, p_run text, p_pipeline text, p_topic text, p_host text, p_alive interval, p_kept integer
) returns setof lakelog.pipeline_run
    language plpgsql
as $$
begin
    update lakelog.pipeline_run set state = 'lost', ended_at = seen_at
    where environment_id = p_environment and pipeline = p_pipeline and topic = p_topic and state = 'running'
      and seen_at < clock_timestamp() - p_alive and run_id <> p_run;
    delete from lakelog.pipeline_run old using (
        select run_id from lakelog.pipeline_run
        where environment_id = p_environment and pipeline = p_pipeline and topic = p_topic and state <> 'running'
        order by started_at desc offset p_kept
    ) forgotten
    where old.run_id = forgotten.run_id;
    insert into lakelog.pipeline_run (run_id, environment_id, pipeline, topic, host)
    values (p_run, p_environment, p_pipeline, p_topic, p_host)
    on conflict do nothing;
    return query
        select * from lakelog.pipeline_run
        where environment_id = p_environment
          and (run_id = p_run or (pipeline = p_pipeline and topic = p_topic and state = 'running'))
        order by run_id = p_run desc limit 1;
end
$$;

grant select, insert, update, delete on lakelog.pipeline_run to lakelog_service;
revoke all on function lakelog.pipeline_begin from public;
grant execute on function lakelog.pipeline_begin to lakelog_service;
