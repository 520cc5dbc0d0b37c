-- Finds the dead letters of a partition that died first, and the groups that limit their dead letters.

create index dead_letter_by_age on lakelog.dead_letter (group_id, pid, (state > 0), at);
create index consumer_group_retention on lakelog.consumer_group (group_id)
    where deleted_at is null and settings -> 'dead_letter_retention' <> '{}';
