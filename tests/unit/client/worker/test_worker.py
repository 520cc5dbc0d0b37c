"""The worker's loop when answers are lost, the server is away, members are forgotten, or owners were lost."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import lakelog
from lakelog.errors import (
    InvalidRequest,
    LakelogError,
    LeaseLost,
    OutcomeForgotten,
    OutcomeUnknown,
    StaleGeneration,
    Unavailable,
)
from lakelog.model.group import Order
from lakelog.model.lease import ConsumeRequest
from lakelog.model.membership import JoinRequest, LeaveRequest
from lakelog.wire.operations.groups import JOIN, LEAVE
from tests.kit.waiting import eventually_async
from tests.unit.client.worker.faulty_groups import AWAY, FIRST_LOST, HANGS, LOST, FaultyLeaseTransport, faulty_client


@asynccontextmanager
async def topic(count: int, partitions: int = 1) -> AsyncIterator[tuple[Any, Any, FaultyLeaseTransport]]:
    """A client, a topic with `count` messages, and the verbs that fail."""
    log, groups = faulty_client()
    async with log:
        found = log.topic("work")
        await found.create(partitions=partitions)
        if count:
            await found.publish_many(list(range(count)))
        try:
            yield log, found, groups
        finally:
            await log.stop(1.0)


async def finished(log: Any) -> None:
    async def nothing_left() -> bool:
        return await log.group("g").lag() == 0

    await eventually_async(nothing_left, within=20, what="everything is finished")


async def test_a_lost_consume_is_asked_again_with_the_same_request_id() -> None:
    """S8, S12: the leases of the first try come again, and nothing is delivered twice."""
    async with topic(20) as (log, found, groups):
        groups.consume_faults += [LOST, LOST, "", LOST]
        seen: list[tuple[int, int]] = []
        found.subscribe(lambda v, d: seen.append((v, d.attempt)), group="g", concurrency=5, start_from="earliest")
        await log.start()
        await finished(log)
        assert sorted(seen) == [(n, 1) for n in range(20)]
        assert groups.requests[0].request_id == groups.requests[1].request_id == groups.requests[2].request_id
        assert groups.requests[3].request_id != groups.requests[0].request_id
        assert groups.repeats[:4] == [False, True, True, False]


@pytest.mark.parametrize("refusal", [Unavailable("away"), StaleGeneration()])
async def test_a_consume_whose_answers_count_is_repeated_if_it_got_no_lease(refusal: LakelogError) -> None:
    async with topic(20) as (log, found, groups):
        groups.refusals.append(refusal)
        seen: list[int] = []
        found.subscribe(seen.append, group="g", batch_size=2, start_from="earliest")
        await log.start()
        await finished(log)
        assert sorted(seen) == list(range(20)) and not groups.refusals
        requests = groups.requests
        (refused,) = [n for n in range(len(requests) - 1) if requests[n].request_id == requests[n + 1].request_id]
        assert requests[refused].answers and not requests[refused + 1].answers
        # An old generation is refused before anything is leased: the server need not search for leases.
        assert groups.repeats[refused + 1] is not isinstance(refusal, StaleGeneration)


async def test_answers_are_repeated_until_they_are_answered() -> None:
    """S10: an ack whose answer was lost, or that could not be sent, is said again, and counts once."""
    async with topic(6) as (log, found, groups):
        groups.answer_faults += [LOST, AWAY, LOST]
        seen: list[int] = []
        found.subscribe(seen.append, group="g", concurrency=2, start_from="earliest")
        await log.start()
        await finished(log)
        assert sorted(seen) == list(range(6))
        await eventually_async(lambda: log.counts["work/g"].acked == 6, what="all were answered")
        assert log.counts["work/g"].lost == 0


async def test_an_answer_without_a_result_of_its_own_is_repeated_beside_others() -> None:
    """S10: the call succeeds, but the database of one partition did not answer."""
    async with topic(6) as (log, found, groups):
        groups.answer_faults += [Unavailable("away"), FIRST_LOST, OutcomeUnknown("lost"), FIRST_LOST]
        seen: list[int] = []
        found.subscribe(seen.append, group="g", concurrency=2, start_from="earliest")
        await log.start()
        await finished(log)
        assert sorted(seen) == list(range(6))
        await eventually_async(lambda: log.counts["work/g"].acked == 6, what="all were answered")
        assert log.counts["work/g"].lost == 0


async def test_acks_that_come_together_go_together() -> None:
    async with topic(21) as (log, found, groups):
        groups.gate = asyncio.Event()
        go_on = asyncio.Event()
        seen: list[int] = []

        @found.subscribe(group="g", concurrency=21, start_from="earliest")
        async def handle(value: int) -> None:
            # One ends before the others, and its answer takes its time.
            if value:
                await go_on.wait()
            seen.append(value)

        await log.start()
        await eventually_async(lambda: len(groups.requests) == 2, what="the first ack was sent")
        go_on.set()
        await eventually_async(lambda: len(seen) == 21, what="all were run")
        assert [len(request.answers) for request in groups.requests] == [0, 1] and log.counts["work/g"].acked == 0
        groups.gate.set()
        await finished(log)
        acks = [[answer for answer in call if answer.verb == "ack"] for call in groups.said]
        assert [len(call) for call in acks if call] == [1, 1]
        assert sorted(offset for call in acks for ack in call for offset in ack.offsets) == list(range(21))


async def test_a_lost_lease_is_counted_and_not_said_again() -> None:
    """S9: a refused ack is final here; the later messages of its key are not run."""
    async with topic(0) as (log, found, groups):
        for n in range(3):
            await found.publish(n, key="k")
        groups.answer_faults.append(LeaseLost("over"))
        seen: list[int] = []
        found.subscribe(seen.append, group="g", concurrency=3, start_from="earliest")
        await log.start()
        await eventually_async(lambda: log.counts["work/g"].lost == 1, what="the refusal arrived")
        assert seen == [0] and len(groups.said) == 1


async def test_an_answer_whose_lease_is_forgotten_is_logged_and_not_counted_as_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with topic(0) as (log, found, groups):
        await found.publish(1)
        groups.answer_faults.append(OutcomeForgotten())
        found.subscribe(lambda value: None, group="g", start_from="earliest")
        await log.start()
        await eventually_async(lambda: "refused the answer ack" in caplog.text, what="the refusal is in the log")
        counts = log.counts["work/g"]
        assert (counts.acked, counts.lost) == (0, 0)


async def test_an_outage_is_survived_without_spinning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "lakelog.connection")
    async with topic(1) as (log, found, groups):
        groups.consume_faults += [AWAY] * 6
        seen: list[int] = []
        found.subscribe(seen.append, group="g", start_from="earliest")
        begun = time.monotonic()
        await log.start()
        await eventually_async(lambda: seen, within=20, what="it goes on")
        # Half of 0.05 + 0.1 + 0.2 + 0.4 + 0.8 + 1.6 at least.
        assert time.monotonic() - begun > 1.5
    warned, ended = [record.getMessage() for record in caplog.records if record.name == "lakelog.connection"]
    assert warned.startswith("work/g: ") and warned.endswith(" Retrying until it succeeds.")
    assert ended.startswith("work/g: Calls succeed again after ")


async def test_a_forgotten_member_joins_again() -> None:
    async with topic(0) as (log, found, groups):
        found.subscribe(print, group="g", session_timeout=30.0, heartbeat=0.05)
        await log.start()
        groups.forgotten = True
        await eventually_async(lambda: len(groups.joined) == 2, what="it joined again")
        assert groups.joined[0].member_id == groups.joined[1].member_id
        assert len((await log.group("g").describe()).members) == 1


async def test_leases_that_come_too_late_for_a_stopping_worker_are_given_back() -> None:
    """S11: no consumer waits for the end of a lease that its owner never saw."""
    async with topic(3) as (log, found, groups):
        groups.consume_faults.append(HANGS)
        found.subscribe(print, group="g", concurrency=3, start_from="earliest")
        await log.start()

        async def leased() -> int:
            return sum(each.leased for each in await log.group("g").progress())

        async def is_leased() -> bool:
            return await leased() == 3

        await eventually_async(is_leased, what="they were leased")
        await log.stop(5.0)
        assert await leased() == 0
        (release,) = [answer for call in groups.said for answer in call]
        assert release.verb == "release" and release.offsets == (0, 1, 2)


async def test_a_suspect_runs_alone_in_the_process() -> None:
    """S12: no other handler of any subscription runs beside it, and the server is informed before it begins."""
    async with topic(1) as (log, found, groups):
        begin: dict[str, Any] = {"start_from": "earliest"}
        request = ConsumeRequest(topic="work", group="g", owner="dead", request_id="r", lease_ms=150, **begin)
        other = log.topic("other")
        await other.create()
        await other.publish_many(list(range(200)))
        running: set[str] = set()
        suspect: list[set[str]] = []
        told: list[bool] = []

        @found.subscribe(group="g", start_from="earliest")
        async def handle(value: int, delivery: lakelog.AsyncDelivery[int]) -> None:
            told.append(any(answer.alone for call in groups.said for answer in call))
            for _ in range(10):
                suspect.append(set(running))
                await asyncio.sleep(0.002)

        @other.subscribe(group="o", concurrency=8, start_from="earliest")
        async def handle_other(value: int) -> None:
            running.add(str(value))
            await asyncio.sleep(0.005)
            running.discard(str(value))

        taken = await groups.consume(request, 5.0)
        assert len(taken.leases) == 1
        await log.start()
        await finished(log)
        assert told == [True] and suspect == [set()] * 10
        await eventually_async(lambda: log.counts["other/o"].acked > 0, what="the others run, too")


async def test_a_new_group_that_skips_messages_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    """Also if the worker has to join a second time."""
    async with topic(1200, partitions=2) as (log, found, groups):
        groups.is_older = True
        groups.describe_faults.append(Unavailable("away"))
        found.subscribe(print, group="g")
        await log.start()
        await log.stop()
        await log.start()
    assert [text for record in caplog.records if (text := record.getMessage()).startswith("Group")] == [
        "Group 'g' is new to topic 'work' and starts at its end: 1,200 existing messages are skipped. To process them, "
        "run `lakelog groups seek g work --to earliest`. To start new groups at the beginning, pass "
        'start_from="earliest".'
    ]


@pytest.mark.parametrize("start_from", ["latest", "earliest", 1])
async def test_where_a_group_starts_is_told_only_if_start_from_has_no_effect(
    start_from: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="lakelog")
    told = "Group 'g' already reads topic 'work' and resumes from its committed offsets; start_from applies only"
    async with topic(3) as (log, found, _):
        found.subscribe(print, group="g", start_from=start_from)
        await log.start()
        await log.stop()
        assert "Group 'g'" not in caplog.text
        await log.start()
        assert caplog.text.count(told) == 1 and "WARNING" not in caplog.text


async def test_a_worker_that_could_not_start_does_not_say_that_it_stopped(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="lakelog")
    async with topic(0) as (log, found, groups):
        groups.is_older = True
        groups.describe_faults.append(InvalidRequest("no"))
        found.subscribe(print, group="g")
        with pytest.raises(InvalidRequest):
            await log.start()
    assert "stopped" not in caplog.text


async def test_a_worker_of_an_empty_topic_warns_of_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with topic(0) as (log, found, _):
        found.subscribe(print, group="g")
        await log.start()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("is_older", [False, True])
async def test_a_worker_learns_the_order_of_an_existing_group_from_its_join(is_older: bool) -> None:
    """A description of the group takes time for each partition, so only servers of older versions are asked for it."""
    async with topic(4) as (log, found, groups):
        groups.is_older = is_older
        joined = await groups.call(JOIN, JoinRequest(group="g", topics=("work",), order=Order.PARTITION), 5.0)
        await groups.call(LEAVE, LeaveRequest(group="g", member_id=joined.member_id), 5.0)
        await found.seek("g", to="earliest")
        groups.calls.clear()
        running = most = 0

        async def handle(value: int) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1

        found.subscribe(handle, group="g", concurrency=4)
        await log.start()
        assert ("describe_group" in groups.calls) is is_older
        await finished(log)
        assert most == 1, "all messages of the partition run one after another"
