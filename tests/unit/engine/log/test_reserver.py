"""Reservations of idempotency keys: shared calls, the first one wins, failures reach all callers."""

from __future__ import annotations

import asyncio

import pytest

from lakelog.engine.log import reserver as module
from lakelog.engine.log.reserver import Reserver
from lakelog.errors import OutcomeUnknown, Unavailable
from lakelog.storage.store import Reservation
from tests.kit.waiting import eventually_async
from tests.unit.engine.support import WatchedStore


def wish(number: int, *, body: bytes = b"b", partition: int = 0) -> Reservation:
    return Reservation(incarnation=1, key_hash=number.to_bytes(16), body_hash=body * 16, partition=partition)


async def test_what_arrives_during_a_call_shares_the_next_one() -> None:
    store = WatchedStore()
    gate = store.hold()
    reserver = Reserver(store, durable=True)
    first = asyncio.create_task(reserver.reserve([wish(0)]))
    await eventually_async(lambda: store.reserved)
    others = [asyncio.create_task(reserver.reserve([wish(n)])) for n in range(1, 50)]
    await asyncio.sleep(0)
    gate.set()
    held = await asyncio.gather(first, *others)
    assert held == [[wish(n)] for n in range(50)]
    assert [len(call) for call in store.reserved] == [1, 49]


async def test_the_first_of_a_key_wins_within_a_call_and_across_calls() -> None:
    store = WatchedStore()
    reserver = Reserver(store, durable=False)
    assert await reserver.reserve([wish(1, partition=3), wish(1, partition=4), wish(2)]) == [
        wish(1, partition=3),
        wish(1, partition=3),
        wish(2),
    ]
    assert await reserver.reserve([wish(1, body=b"x", partition=5)]) == [wish(1, partition=3)]
    assert [len(call) for call in store.reserved] == [2, 1]


async def test_a_call_stops_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_PER_CALL", 10)
    store = WatchedStore()
    assert await Reserver(store, durable=True).reserve([wish(n) for n in range(25)]) == [wish(n) for n in range(25)]
    assert [len(call) for call in store.reserved] == [10, 10, 5]


@pytest.mark.parametrize(
    ("error", "expected"), [(Unavailable("down", topic="t"), Unavailable), (RuntimeError("boom"), OutcomeUnknown)]
)
async def test_a_failure_reaches_all_of_its_call_and_the_next_call_goes_on(
    error: Exception, expected: type[Exception]
) -> None:
    store = WatchedStore()
    store.failures.append(error)
    reserver = Reserver(store, durable=True)
    answers = await asyncio.gather(*(reserver.reserve([wish(n)]) for n in range(3)), return_exceptions=True)
    assert [type(answer) for answer in answers] == [expected] * 3
    assert await reserver.reserve([wish(1)]) == [wish(1)]


async def test_a_caller_that_gave_up_disturbs_nobody() -> None:
    store = WatchedStore()
    gate = store.hold()
    reserver = Reserver(store, durable=True)
    gone, other = (asyncio.create_task(reserver.reserve([wish(n)])) for n in range(2))
    await eventually_async(lambda: store.reserved)
    gone.cancel()
    gate.set()
    assert await other == [wish(1)]
