"""Lanes and pieces under every kind of failure: once each, in order, with unknown outcomes reported."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakelog.client.publishing import sessions
from lakelog.client.publishing.sessions import ProducerSession, SessionPool
from lakelog.client.retrying import CallRetryPolicy
from lakelog.errors import NotAllowed, OutcomeUnknown, PartlyPublished, SequenceRefused, Unavailable
from tests.kit.waiting import eventually_async
from tests.unit.client.faulty import QUICK, Fault, FaultyTransport, client_of

REPAIRABLE = [fault for fault in Fault if fault is not Fault.REFUSED]
NO_TIME = replace(QUICK, limit_seconds=0.05)


@pytest.mark.parametrize("fault", REPAIRABLE)
async def test_one_message_is_published_once(fault: Fault) -> None:
    transport = FaultyTransport([Fault.NONE, fault, fault])
    async with client_of(transport) as log:
        topic = log.topic("t")
        await topic.create(2)
        await topic.publish("before", key="k")
        receipt = await topic.publish("once", key="k")
        assert not receipt.duplicate
        assert sorted([message.value async for message in topic.read()]) == ["before", "once"]
        assert [message.id async for message in topic.read() if message.value == "once"] == [receipt.id]
        # The lane was given back: no second producer was needed.
        await topic.publish("after", key="k")
        assert len({number[0] for number in transport.numbers if number}) == 1


async def test_a_repeat_is_the_same_call() -> None:
    transport = FaultyTransport([Fault.LOST_ANSWER, Fault.LOST_CALL, Fault.UNAVAILABLE])
    async with client_of(transport) as log:
        topic = log.topic("t")
        await topic.create(4)
        await topic.publish("a")
        assert len(transport.numbers) == 4
        assert len(set(transport.numbers)) == 1


async def test_a_refusal_is_definite_only_if_no_answer_was_lost() -> None:
    async with client_of(FaultyTransport([Fault.REFUSED, Fault.LOST_ANSWER, Fault.REFUSED])) as log:
        topic = log.topic("t")
        await topic.create()
        with pytest.raises(NotAllowed):
            await topic.publish("a")
        with pytest.raises(OutcomeUnknown, match="lost"):
            await topic.publish("b")


async def test_giving_up_says_what_is_known() -> None:
    async with client_of(FaultyTransport([Fault.UNAVAILABLE] * 1000)) as log:
        topic = log.topic("t")
        await topic.create()
        log._calls.policy = NO_TIME
        with pytest.raises(Unavailable):
            await topic.publish("a")
    faults = [Fault.LOST_CALL, *[Fault.UNAVAILABLE] * 1000]
    transport = FaultyTransport(faults)
    async with client_of(transport) as log:
        topic = log.topic("t")
        await topic.create()
        log._calls.policy = NO_TIME
        with pytest.raises(OutcomeUnknown):
            await topic.publish("a")
        transport.faults.clear()
        log._calls.policy = QUICK
        first = transport.numbers[0]
        await topic.publish("b")
        # The session's next sequence is unknown, so the session is not used again.
        assert first is not None
        assert transport.numbers[-1] is not None
        assert transport.numbers[-1][0] != first[0]


async def test_a_cancelled_call_takes_its_lane_along() -> None:
    transport = FaultyTransport()
    async with client_of(transport) as log:
        topic = log.topic("t")
        await topic.create()
        await topic.publish("a")
        transport.faults.extend([Fault.UNAVAILABLE] * 100_000)
        call = asyncio.create_task(topic.publish("b"))
        calls = transport.calls
        await eventually_async(lambda: transport.calls >= calls + 2, every=0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        transport.faults.clear()
        await topic.publish("c")
        assert [message.value async for message in topic.read()] == ["a", "c"]
        assert len({number[0] for number in transport.numbers if number}) == 2


async def test_calls_at_once_use_a_lane_each() -> None:
    transport = FaultyTransport([Fault.LOST_ANSWER] * 10)
    async with client_of(transport) as log:
        topic = log.topic("t")
        await topic.create(4)
        await asyncio.gather(*(topic.publish(n, key=n % 3) for n in range(40)))
        assert sorted([message.value async for message in topic.read()]) == list(range(40))


async def test_a_forgotten_producer_begins_anew() -> None:
    transport = FaultyTransport()
    async with client_of(transport) as log:
        topic = log.topic("t")
        await topic.create()
        await topic.publish("a")
        state = topic._state
        session = state.sessions.take()
        session.producer = bytes(range(16))
        state.sessions.give(session)
        await topic.publish("b")
        session = state.sessions.take()
        session.written(0, 8)
        state.sessions.give(session)
        await topic.publish_many(["c"])
        assert [message.value async for message in topic.read()] == ["a", "b", "c"]


async def test_a_sequence_refused_twice_is_told() -> None:
    class Refusing(FaultyTransport):
        async def publish_messages(self, *args: object) -> list[object]:  # type: ignore[override]
            self.calls += 1
            return [SequenceRefused()]

    transport = Refusing()
    async with client_of(transport) as log:
        topic = log.topic("t")
        await topic.create()
        with pytest.raises(SequenceRefused):
            await topic.publish("a")
        assert transport.calls == 2


@pytest.mark.parametrize("fault", REPAIRABLE)
async def test_idempotency_keys_need_no_lane(fault: Fault) -> None:
    transport = FaultyTransport([fault])
    async with client_of(transport) as log:
        topic = log.topic("t")
        await topic.create(4)
        receipt = await topic.publish("a", idempotency_key="k")
        assert set(transport.numbers) == {None}
        assert [message.id async for message in topic.read()] == [receipt.id]


@settings(max_examples=60, deadline=None)
@given(faults=st.lists(st.sampled_from(REPAIRABLE), max_size=30))
async def test_a_producer_publishes_once_and_in_order(faults: list[Fault]) -> None:
    transport = FaultyTransport(faults)
    async with client_of(transport) as log:
        topic = log.topic("t")
        await topic.create(2)
        async with topic.producer(max_batch=7, linger=0) as producer:
            for n in range(60):
                await producer.send(n, key=n % 5, partition=1 if n % 5 == 4 else None)
        seen: dict[tuple[bytes | None, int], list[int]] = {}
        async for message in topic.read():
            seen.setdefault((message.key, message.partition), []).append(message.value)
        assert sorted(value for values in seen.values() for value in values) == list(range(60))
        assert all(values == sorted(values) for values in seen.values())
        assert {partition for key, partition in seen if key == b"4"} == {1}


@settings(max_examples=60, deadline=None)
@given(faults=st.lists(st.sampled_from(list(Fault)), max_size=20))
async def test_publish_many_tells_the_truth(faults: list[Fault]) -> None:
    transport = FaultyTransport(faults)
    async with client_of(transport) as log:
        topic = log.topic("t")
        await topic.create(3)
        acked: set[str] = set()
        unknown: set[int] = set()
        for start in range(0, 40, 10):
            try:
                results: list[object] = list(await topic.publish_many(range(start, start + 10)))
            except PartlyPublished as error:
                results = error.results
            for value, result in enumerate(results, start):
                if isinstance(result, OutcomeUnknown):
                    unknown.add(value)
                elif not isinstance(result, Exception):
                    acked.add(f"{result.id}={value}")  # type: ignore[attr-defined]
        found = [f"{message.id}={message.value}" async for message in topic.read()]
        assert len(found) == len(set(found))
        assert acked <= set(found)
        assert {int(text.split("=")[1]) for text in set(found) - acked} <= unknown


def test_lanes_are_reused_newest_first_and_not_when_old(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = SessionPool()
    first, second = ProducerSession(), ProducerSession()
    pool.give(first)
    pool.give(second)
    assert pool.take() is second
    pool.give(second)
    monkeypatch.setattr(sessions, "IDLE_SECONDS", -1.0)
    assert pool.take() not in (first, second)
    assert len(pool) == 0


async def test_creating_is_repeated_only_where_it_is_safe() -> None:
    class Losing(FaultyTransport):
        async def call(self, operation: Any, request: Any, seconds: float) -> Any:
            self.calls += 1
            made = await super().call(operation, request, seconds)
            if self.calls == 1:
                raise OutcomeUnknown("lost")
            return made

    for if_missing in (True, False):
        transport = Losing()
        async with client_of(transport) as log:
            creating = log.topic("t").create(if_missing=if_missing)
            if if_missing:
                assert (await creating).partitions == 1
            else:
                with pytest.raises(OutcomeUnknown):
                    await creating
            assert transport.calls == (2 if if_missing else 1)


async def test_a_producer_that_gives_up_says_so_and_goes_on() -> None:
    transport = FaultyTransport([Fault.LOST_ANSWER] * 1000)
    async with client_of(transport, CallRetryPolicy(first_pause_seconds=0.001, longest_pause_seconds=0.002)) as log:
        topic = log.topic("t")
        await topic.create()
        producer = topic.producer(give_up_after=0.5, linger=3600)
        await producer.send("given up")
        with pytest.raises(PartlyPublished) as caught:
            await producer.flush()
        assert isinstance(caught.value.results[0], OutcomeUnknown)
        transport.faults.clear()
        await producer.send("published")
        await producer.close()
        # The outcome was unknown, but it was written; the next batch must not be taken for a repeat of it.
        assert [message.value async for message in topic.read()] == ["given up", "published"]
