-- Finds the oldest dead letters of a partition that are redriven or discarded, for their purge.

create index dead_letter_finished on lakelog.dead_letter (group_id, pid, at) where state > 0;
