-- A reservation counts from its last use. Otherwise it expires before an append that a later retry made, and the next retry
-- is appended again, in another partition.

grant update (at) on lakelog.reservation to lakelog_service;

-- Returns the reservations that hold, in the order of the arguments. Keys are inserted in order, which prevents deadlocks.
create or replace function lakelog.reserve(
    p_durable boolean, p_incarnations bigint[], p_key_hashes bytea[], p_body_hashes bytea[], p_partitions integer[]
) returns table (part integer, body_hash bytea, "partition" integer)
    language plpgsql
as $$
begin
    if not p_durable then
        perform set_config('synchronous_commit', 'off', true);
    end if;
    insert into lakelog.reservation as r (incarnation, key_hash, body_hash, partition)
    select u.incarnation, u.key_hash, u.body_hash, u.partition
    from unnest(p_incarnations, p_key_hashes, p_body_hashes, p_partitions) as u (incarnation, key_hash, body_hash, partition)
    order by 1, 2
    on conflict on constraint reservation_pkey do update set at = excluded.at where r.body_hash = excluded.body_hash;
    return query
    select u.part::integer, r.body_hash, r.partition
    from unnest(p_incarnations, p_key_hashes) with ordinality as u (incarnation, key_hash, part)
    join lakelog.reservation r on r.incarnation = u.incarnation and r.key_hash = u.key_hash
    order by u.part;
end
$$;
