-- samples_write: writes samples of a minute, and returns how many are new
select lakelog.samples_write($1::integer, $2::bigint[], $3::bigint[], $4::bytea[]) as written;

-- samples_read_minute: returns the samples of groups in some topics between two minutes, by group, topic and minute
select s.group_id, s.incarnation, x.minute, x.body
from lakelog.sample_series s
cross join lateral (
    select m.minute, m.body from lakelog.sample_minute m
    where m.series = s.series and m.minute between $3::integer and $4::integer and m.minute % $5::integer = 0 offset 0
) x
where s.group_id = any ($1::bigint[]) and s.incarnation = any ($2::bigint[])
order by 1, 2, 3;

-- samples_read_ten_minutes: the same of ten minutes
select s.group_id, s.incarnation, x.minute, x.body
from lakelog.sample_series s
cross join lateral (
    select m.minute, m.body from lakelog.sample_ten_minutes m
    where m.series = s.series and m.minute between $3::integer and $4::integer and m.minute % $5::integer = 0 offset 0
) x
where s.group_id = any ($1::bigint[]) and s.incarnation = any ($2::bigint[])
order by 1, 2, 3;

-- samples_read_hour: the same of an hour
select s.group_id, s.incarnation, x.minute, x.body
from lakelog.sample_series s
cross join lateral (
    select m.minute, m.body from lakelog.sample_hour m
    where m.series = s.series and m.minute between $3::integer and $4::integer and m.minute % $5::integer = 0 offset 0
) x
where s.group_id = any ($1::bigint[]) and s.incarnation = any ($2::bigint[])
order by 1, 2, 3;

-- samples_trim: drops old tables, and returns how many
select sum(lakelog.history_extend(t.name, $1::bigint))::integer as dropped
from unnest(array['sample_minute', 'sample_ten_minutes', 'sample_hour']) as t (name);

-- series_trim: deletes some series whose samples were all dropped
delete from lakelog.sample_series where series = any (array(
    select s.series from lakelog.sample_series s
    where not exists (select from lakelog.sample_hour h where h.series = s.series)
    limit $1));
