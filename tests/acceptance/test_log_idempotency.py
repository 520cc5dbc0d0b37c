"""Idempotency keys: one key, one message, for every caller and server that repeats it."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

from lakelog.errors import IdempotencyConflict
from lakelog.model.position import Receipt
from tests.acceptance.engines import Log
from tests.unit.engine.support import text


async def test_a_repeat_has_the_place_of_the_first(log: Log) -> None:
    async with log.server() as server:
        await server.create(5)
        given = [text(str(n), idempotency_key=f"k{n}", key=b"key" if n % 2 else None) for n in range(30)]
        first = await server.publish(*given)
        again = await server.publish(*given)
        assert again == [replace(receipt, duplicate=True) for receipt in first]
        assert sum(head.next_offset for head in await server.heads()) == 30


async def test_repeats_within_one_call_are_one_message(log: Log) -> None:
    async with log.server() as server:
        await server.create(2)
        a, b = text("a", idempotency_key="a"), text("b", idempotency_key="b")
        receipts = await server.publish(a, a, b, text("plain"), a, b)
        assert [receipt.duplicate for receipt in receipts] == [False, True, False, False, True, True]
        assert len({receipt.id for receipt in receipts}) == 3
        assert sorted(await server.values(0) + await server.values(1)) == ["a", "b", "plain"]


async def test_new_and_used_keys_mix_in_one_call(log: Log) -> None:
    async with log.server() as server:
        await server.create()
        await server.publish(*(text(str(n), idempotency_key=f"k{n}") for n in range(0, 10, 2)))
        receipts = await server.publish(*(text(str(n), idempotency_key=f"k{n}") for n in range(10)), text("plain"))
        assert [receipt.duplicate for receipt in receipts] == [n % 2 == 0 for n in range(10)] + [False]
        values = await server.values()
        assert [values[receipt.offset] for receipt in receipts] == [*map(str, range(10)), "plain"]
        assert len(values) == 11


async def test_a_key_with_another_body_is_refused_and_the_others_go_in(log: Log) -> None:
    async with log.servers(2) as (here, there):
        await here.create(3)
        await here.publish(text("a", idempotency_key="k"))
        refused, receipt = await there.answers(text("b", idempotency_key="k"), text("c"))
        assert isinstance(refused, IdempotencyConflict)
        assert isinstance(receipt, Receipt)
        assert sorted([v for n in range(3) for v in await here.values(n)]) == ["a", "c"]


async def test_a_repeat_at_the_other_server_stays_where_the_first_went(log: Log) -> None:
    async with log.servers(2) as (here, there):
        await here.create(6)
        given = [text(str(n), idempotency_key=f"k{n}") for n in range(60)]
        first = await here.publish(*given)
        again = await there.publish(*reversed(given))
        assert [receipt.id for receipt in first] == [receipt.id for receipt in reversed(again)]
        assert all(receipt.duplicate for receipt in again)


async def test_two_servers_at_once_give_each_key_one_offset(log: Log) -> None:
    async with log.servers(2) as servers:
        await servers[0].create(4)

        async def publish(number: int, key: int) -> Receipt:
            (receipt,) = await servers[number].publish(text(str(key), idempotency_key=f"k{key}"))
            return receipt

        both = await asyncio.gather(*(publish(number, key) for key in range(200) for number in range(2)))
        pairs = list(zip(both[::2], both[1::2], strict=True))
        assert all((one.partition, one.offset) == (other.partition, other.offset) for one, other in pairs)
        assert all(one.duplicate != other.duplicate for one, other in pairs)
        found = Counter([v for n in range(4) for v in await servers[0].values(n)])
        assert found == Counter(map(str, range(200)))


async def test_keys_of_a_recreated_topic_are_new(log: Log) -> None:
    async with log.server() as server:
        for body in ("old", "new"):
            await server.create(2)
            (receipt,) = await server.publish(text(body, idempotency_key="k"))
            assert (receipt.offset, receipt.duplicate) == (0, False)
            await server.engine.topics.delete(server.scope, server.name)


async def test_keys_hold_after_a_purge_and_after_maintenance(log: Log) -> None:
    async with log.server() as server:
        await server.create()
        (first,) = await server.publish(text("a", idempotency_key="k"))
        await server.engine.topics.purge(server.scope, server.name)
        for store in server.engine.cells.values():
            await store.trim({})
        (again,) = await server.publish(text("a", idempotency_key="k"))
        assert again == replace(first, duplicate=True)
