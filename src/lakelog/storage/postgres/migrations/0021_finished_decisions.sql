-- Finds the decisions of writes that finished long ago, for their trim, which otherwise reads the whole table.

create index decision_finished on lakelog.decision (finished_at);
