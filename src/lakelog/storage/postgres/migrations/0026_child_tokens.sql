-- Tokens that callers make for themselves. A child is refused as soon as its parent is revoked. Expired children are
-- deleted when the next one is made.

alter table lakelog.token add column parent_id text references lakelog.token;
create index token_by_parent on lakelog.token (parent_id, expires_at) where parent_id is not null;
grant delete on lakelog.token to lakelog_service;
