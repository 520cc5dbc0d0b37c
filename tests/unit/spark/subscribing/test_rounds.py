"""Leases split into slots, and outcomes turned into answers; a real engine in memory takes them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict

import lakelog
from lakelog import Lakelog
from lakelog.client.values import Consumed
from lakelog.client.worker.options import SubscriptionOptions
from lakelog.model.group import Order
from lakelog.model.lease import Answered, ConsumeRequest, LeaseAnswer, Verb
from lakelog.spark.subscribing.executor import halves
from lakelog.spark.subscribing.handling import ChildEvent, HandlerOutcome, SlotResult
from lakelog.spark.subscribing.rounds import (
    SparkRound,
    answers_of,
    round_of,
    slots_of,
    tasks_of,
    work_of,
)
from lakelog.spark.subscribing.subscribe import RoundSizer, SubscriptionLoop

OWNER, GROUP = "spark-1", "scoring"


@pytest.fixture
def log() -> Iterator[Lakelog]:
    with lakelog.connect(f"memory://{uuid.uuid4().hex}") as log:
        log.topic("orders").create(partitions=2)
        yield log


def take(log: Lakelog, **options: Any) -> Consumed:
    return log.group(GROUP).consume(
        ConsumeRequest(
            topic="orders",
            group=GROUP,
            owner=OWNER,
            request_id=uuid.uuid4().hex,
            max_messages=1000,
            **asdict(SubscriptionOptions(start_from="earliest", **options).group_settings()),
        )
    )


def publish(log: Lakelog, count: int, keys: int) -> None:
    orders = log.topic("orders")
    for number in range(count):
        orders.publish({"n": number}, key=f"k{number % keys}" if keys else None, headers={"h": str(number)})


def answered(log: Lakelog, found: SparkRound, outcomes: Mapping[int, HandlerOutcome]) -> int:
    """Says all of it; how many were given back behind dead letters. Nothing may be refused."""
    answers = answers_of(found, outcomes)
    results = log.group(GROUP).answer("orders", OWNER, answers.first)
    assert all(isinstance(result, Answered) for result in results), results
    then = answers.then(results)
    assert all(isinstance(result, Answered) for result in log.group(GROUP).answer("orders", OWNER, then) if then)
    return sum(len(answer.offsets) for answer in then)


def test_a_lane_travels_with_all_that_a_handler_may_ask_for(log: Lakelog) -> None:
    publish(log, 40, keys=5)
    found = round_of("orders", [take(log)], Order.KEY)
    slots = slots_of(found.chains(), 3)
    tasks = [task for slot in slots for task in tasks_of(work_of(found, slot))]
    assert sorted(task.message.value["n"] for task in tasks) == list(range(40))
    for task in tasks:
        number = task.message.value["n"]
        assert (task.message.key, task.message.headers) == (f"k{number % 5}".encode(), {"h": str(number)})
        assert (task.attempt, task.failures, task.message.topic) == (1, 0, "orders")
        stored = log.topic("orders").fetch(task.message.partition, offset=task.message.offset, limit=1)
        assert [message.id for message in stored.messages] == [task.message.id]


def test_messages_of_a_key_are_one_chain_and_those_without_are_free(log: Lakelog) -> None:
    """S15"""
    publish(log, 20, keys=2)
    assert len(set(round_of("orders", [take(log)], Order.KEY).chains())) == 2
    publish(log, 20, keys=0)
    found = round_of("orders", [take(log)], Order.KEY)
    assert len(set(found.chains())) == found.count > 1


def test_every_order_has_its_chains(log: Lakelog) -> None:
    publish(log, 20, keys=5)
    consumed = take(log)
    assert len(set(round_of("orders", [consumed], Order.NONE).chains())) == 20
    partitions = {lease.partition for lease in consumed.leases}
    assert len(set(round_of("orders", [consumed], Order.PARTITION).chains())) == len(partitions)


@given(st.lists(st.integers(-3, 5), min_size=1, max_size=60), st.integers(1, 8))
def test_lanes_keep_chains_together_and_in_order(chains: list[int], count: int) -> None:
    """S15: and no row is lost."""
    slots = slots_of(np.array(chains), count)
    assert sorted(row for slot in slots for row in slot) == list(range(len(chains)))
    assert len(slots) <= count and all(list(slot) == sorted(slot) for slot in slots)
    homes = [{chains[row] for row in slot} for slot in slots]
    assert sum(map(len, homes)) == len(set(chains))


def test_lanes_are_about_as_long_as_one_another() -> None:
    chains = np.array([1] * 10 + [2] * 4 + [*range(-1, -27, -1)])
    assert sorted(len(slot) for slot in slots_of(chains, 4)) == [10, 10, 10, 10]


@given(st.lists(st.integers(0, 3), min_size=2, max_size=20))
def test_halves_are_all_and_none_is_empty(chains: list[int]) -> None:
    first, second = halves(np.array(chains))
    assert sorted([*first, *second]) == list(range(len(chains))) and len(first) and len(second)
    shared = {chains[row] for row in first} & {chains[row] for row in second}
    assert not shared or (len(set(chains)) == 1 and list(first) == [0])


def test_a_report_is_read_as_it_was_written() -> None:
    outcomes = [
        HandlerOutcome(ChildEvent.ACK),
        HandlerOutcome(ChildEvent.NACK, "no", 20),
        HandlerOutcome(ChildEvent.RELEASE),
        HandlerOutcome(ChildEvent.FAIL, "bad"),
    ]
    outcomes += [HandlerOutcome(ChildEvent.NACK, "", 0), HandlerOutcome(ChildEvent.NACK, "no", None, "in pay")]
    sent = msgspec.msgpack.encode(SlotResult(outcomes=outcomes, crashed=1, timed_out=2))
    result = msgspec.msgpack.decode(sent, type=SlotResult)
    assert result.outcomes == outcomes and (result.crashed, result.timed_out) == (1, 2)


def test_answers_are_accepted_whatever_became_of_the_messages(log: Lakelog) -> None:
    """S14, S15: what is behind a nack goes back by itself, what is behind a dead letter is given back."""
    publish(log, 60, keys=6)
    found = round_of("orders", [take(log, retries=0)], Order.KEY)
    chains, chance = found.chains().tolist(), np.random.default_rng(3)
    blocked: dict[int, ChildEvent] = {}
    outcomes = {}
    for row, chain in enumerate(chains):
        event = (
            ChildEvent.RELEASE
            if chain in blocked
            else [ChildEvent.ACK, ChildEvent.ACK, ChildEvent.DISCARD, ChildEvent.NACK][chance.integers(4)]
        )
        outcomes[row] = HandlerOutcome(event, "x" if event is ChildEvent.NACK else "")
        if event is ChildEvent.NACK:
            blocked[chain] = event
    released = sum(each.event is ChildEvent.RELEASE for each in outcomes.values())
    assert answered(log, found, outcomes) == released > 0, "each failure is the last, and frees its key"
    progress = log.group(GROUP).progress("orders")
    assert sum(each.leased for each in progress) == 0
    assert sum(each.dead for each in progress) == len(blocked)
    assert sum(each.lag for each in progress) == released


def test_what_is_behind_a_failure_is_not_given_back_twice(log: Lakelog) -> None:
    publish(log, 6, keys=1)
    found = round_of("orders", [take(log, retries=3)], Order.KEY)
    outcomes = {
        0: HandlerOutcome(ChildEvent.ACK),
        1: HandlerOutcome(ChildEvent.NACK, "x"),
        **{row: HandlerOutcome(ChildEvent.RELEASE) for row in range(2, 6)},
    }
    assert answered(log, found, outcomes) == 0
    progress = log.group(GROUP).progress("orders")
    assert (sum(each.leased for each in progress), sum(each.lag for each in progress)) == (0, 5)


def test_the_failures_of_a_round_are_one_line_and_the_traceback_of_a_new_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = SubscriptionLoop(None, None, "orders", RoundSizer(2, 10))  # type: ignore[arg-type]
    failed = [
        LeaseAnswer(
            verb=Verb.NACK, partition=1, token=1, offsets=(offset,), reason="ValueError: no", traceback="in pay\n"
        )
        for offset in (5, 6)
    ]
    for _ in range(2):
        loop._log_failed(failed, 10, 1)
    line = "orders: 2 of 10 messages failed, 1 became dead letters; the first is 1:5: ValueError: no"
    assert caplog.messages == [f"{line}\nin pay", line]


def test_rounds_grow_with_fast_handlers_and_shrink_with_slow_ones() -> None:
    pace = RoundSizer(slots=4, most=5000)
    assert pace.size == 128
    pace.took(128, 0.2)
    assert pace.size == 512
    for _ in range(5):
        pace.took(pace.size, 0.2)
    assert pace.size == 5000
    pace.took(5000, 100)
    assert pace.size == 100
    pace.took(3, 0.1)
    assert pace.size == 60, "a round that was not full says less, but that it was slow"
    pace.took(10, 100)
    assert pace.size == 4
