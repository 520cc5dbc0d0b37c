-- Messages from outboxes, which are schemas in the databases of applications, and messages that the log refused after they
-- were published.

-- The relay that may append messages of an outbox is that with this epoch.
create table lakelog.outbox_relay (
    outbox_id bigint primary key,
    environment_id bigint not null,
    epoch bigint not null
);

-- Messages of an outbox that one statement appended to one partition, in the order of their offsets. The number and the salt
-- identify a message in its outbox. Rejected messages have the pid 0.
create table lakelog.relayed (
    outbox_id bigint not null,
    pid bigint not null,
    base_offset bigint not null,
    numbers bigint[] not null,
    salts integer[] not null,
    relayed_at timestamptz not null,
    span int8range not null
);
create index relayed_by_number on lakelog.relayed using gist (span);
create index relayed_by_time on lakelog.relayed (outbox_id, relayed_at);

create table lakelog.rejected_message (
    number bigint generated always as identity primary key,
    environment_id bigint not null,
    message_id text not null,
    source text not null,
    topic text not null,
    code text not null,
    reason text not null,
    partition integer,
    payload bytea not null,
    rejected_at timestamptz not null,
    unique (environment_id, message_id)
);
create index rejected_message_by_environment on lakelog.rejected_message (environment_id, number);

-- Returns whether a relay has the newest epoch of its outbox, and lets no other relay get one before this transaction ends.
create function lakelog.relay_is_current(r_outbox bigint, r_epoch bigint) returns boolean
    language plpgsql
as $$
begin
    return (select o.epoch from lakelog.outbox_relay o where o.outbox_id = r_outbox for update) is not distinct from r_epoch;
end
$$;

-- Records messages as relayed: those of p_pids[n] begin at p_bases[n].
create function lakelog.relayed_write(
    r_outbox bigint, r_pids bigint[], r_numbers bigint[], r_salts integer[], p_pids bigint[], p_bases bigint[]
) returns void
    language sql
as $$
    insert into lakelog.relayed (outbox_id, pid, base_offset, numbers, salts, relayed_at, span)
    select r_outbox, r.pid, p.base, array_agg(r.number order by r.place), array_agg(r.salt order by r.place),
           clock_timestamp(), int8range(min(r.number), max(r.number), '[]')
    from unnest(r_pids, r_numbers, r_salts) with ordinality as r (pid, number, salt, place)
    join unnest(p_pids, p_bases) as p (pid, base) on p.pid = r.pid
    group by r.pid, p.base
$$;

-- Appends messages of an outbox like lakelog.append, and records them. Status 7: the relay was replaced by another one.
create function lakelog.relay(
    r_outbox bigint, r_epoch bigint, r_pids bigint[], r_numbers bigint[], r_salts integer[],
    p_roll integer, p_pids bigint[], p_epochs integer[], p_counts integer[], p_bytes bigint[],
    q_pids bigint[], q_producers bytea[], q_sequences bigint[], q_starts integer[], q_counts integer[],
    k_pids bigint[], k_hashes bytea[], k_starts integer[]
) returns setof lakelog.append_answer
    language plpgsql
as $$
declare
    v_answer lakelog.append_answer;
    v_pids bigint[] := '{}';
    v_bases bigint[] := '{}';
begin
    if not lakelog.relay_is_current(r_outbox, r_epoch) then
        return query select p.pid, 7::smallint, null::bigint, null::bigint, null::timestamptz, null::integer, null::integer,
                            null::boolean, null::integer, null::smallint, null::bigint
                     from unnest(p_pids) as p (pid);
        return;
    end if;
    for v_answer in
        select * from lakelog.append(p_roll, p_pids, p_epochs, p_counts, p_bytes, q_pids, q_producers, q_sequences,
                                     q_starts, q_counts, k_pids, k_hashes, k_starts)
    loop
        if v_answer.status = 0 then
            v_pids := v_pids || v_answer.pid;
            v_bases := v_bases || v_answer.base;
        end if;
        return next v_answer;
    end loop;
    perform lakelog.relayed_write(r_outbox, r_pids, r_numbers, r_salts, v_pids, v_bases);
end
$$;

-- Stores rejected messages of an outbox and records them as relayed. Returns false if the relay was replaced by another one.
create function lakelog.outbox_reject(
    r_outbox bigint, r_epoch bigint, r_numbers bigint[], r_salts integer[], p_environment bigint, p_message_ids text[],
    p_topics text[], p_codes text[], p_reasons text[], p_partitions integer[], p_payloads bytea[]
) returns boolean
    language plpgsql
as $$
begin
    if not lakelog.relay_is_current(r_outbox, r_epoch) then
        return false;
    end if;
    insert into lakelog.rejected_message
        (environment_id, message_id, source, topic, code, reason, partition, payload, rejected_at)
    select p_environment, m.message_id, 'outbox', m.topic, m.code, m.reason, m.partition, m.payload, clock_timestamp()
    from unnest(p_message_ids, p_topics, p_codes, p_reasons, p_partitions, p_payloads) with ordinality
        as m (message_id, topic, code, reason, partition, payload, place)
    order by m.place
    on conflict (environment_id, message_id) do nothing;
    perform lakelog.relayed_write(
        r_outbox, array_fill(0::bigint, array[cardinality(r_numbers)]), r_numbers, r_salts, array[0::bigint], array[0::bigint]);
    return true;
end
$$;

grant select, insert, update on lakelog.outbox_relay to lakelog_service;
grant select, insert, delete on lakelog.relayed to lakelog_service;
grant select, insert, update, delete on lakelog.rejected_message to lakelog_service;
revoke all on function lakelog.relay_is_current, lakelog.relayed_write, lakelog.relay, lakelog.outbox_reject from public;
grant execute on function lakelog.relay_is_current, lakelog.relayed_write, lakelog.relay, lakelog.outbox_reject
    to lakelog_service;
