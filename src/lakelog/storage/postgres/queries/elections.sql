-- runner_elect: returns whether the runner has the task, and if so, extends its lease
select lakelog.runner_elect($1, $2, $3);

-- runner_resign: gives a task up
delete from lakelog.runner where task = $1 and runner = $2;
