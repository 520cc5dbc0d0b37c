"""Document 003, the Consumer of SeaStreamer: its statements about groups, load-balancing, failover, seek and reset.

`test_document_seastreamer_consumer` has its statements about the modes and methods of a consumer.
"""

from __future__ import annotations

import functools
import threading
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.acceptance.documents import (
    SHORT_MS,
    Beating,
    Installation,
    Leased,
    Seen,
    connected,
    fresh,
    in_background,
    taken_after,
    until_taken,
)
from tests.kit.waiting import eventually

# The group is a string, and its state is the server's -----------------------------------------------------------------


def test_a_group_is_all_that_matters_when_one_reconnects(lake: Installation) -> None:
    """A client that reconnects from any host continues where its group is: the server keeps the state."""
    topic, group = lake.topic(), fresh("group")
    seen = Seen()
    for count in (2, 4):
        lake.publish(topic, [count - 1, count])
        # A new client each time, with its own owner, that knows only the name of the group.
        with connected(lake) as log:
            log.topic(topic).subscribe(seen.append, group=group, start_from="earliest")
            log.start()
            seen.until(count)
            eventually(functools.partial(_is_at, lake, group, topic, count))
    assert list(seen) == [1, 2, 3, 4]


def _is_at(lake: Installation, group: str, topic: str, offset: int) -> bool:
    return lake.committed(group, topic) == [offset]


def test_consumers_share_a_group_at_the_same_time(lake: Installation) -> None:
    """Several consumers of one group may be connected at once; only one of them receives a message."""
    topic, group = lake.topic(), fresh("group")
    waits = [in_background(lake.consume, topic, group, owner, wait_ms=20_000) for owner in ("a", "b", "c")]
    lake.begin(topic, group, start_from="latest")
    for value in ("one", "three", "two"):
        lake.publish(topic, [value])
    assert sorted(leased.value for wait in waits for leased in wait.result(30)) == ["one", "three", "two"]


# Load-balancing by partitions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("partitions", "shares"), [(2, [1, 1]), (3, [1, 2]), (1, [0, 1])])
def test_partitions_are_balanced(lake: Installation, partitions: int, shares: list[int]) -> None:
    """Two consumers: of two partitions each has one; of three, one has two; of one, one is on standby."""
    topic, group = lake.topic(partitions), fresh("group")
    for member in ("a", "b"):
        lake.join(group, member, topic)
    assert sorted(len(own) for own in lake.assigned(group, topic).values()) == shares


def test_two_consumers_of_two_partitions_receive_one_each(lake: Installation) -> None:
    """Each consumer receives the messages of its own partition."""
    topic, group = lake.topic(2), fresh("group")
    for member in ("a", "b"):
        lake.join(group, member, topic, order="partition", start_from="earliest")
    for partition in range(2):
        lake.publish(topic, range(3), partition=partition)
    generation = lake.describe(group)["generation"]
    for member, own in lake.assigned(group, topic).items():
        leased = lake.drain(topic, group, member, member_id=member, generation=generation)
        assert ({each.partition for each in leased}, [each.value for each in leased]) == (set(own), [0, 1, 2])


def test_hot_failover_with_one_partition(lake: Installation) -> None:
    """One partition and many consumers: only the assigned one receives, until it dies and a standby replaces it."""
    topic, group = lake.topic(), fresh("group")
    active = lake.join(group, "active", topic, order="partition", start_from="earliest")
    standby = lake.join(group, "standby", topic)
    with Beating(lake, group, standby) as beating:
        lake.publish(topic, ["one", "two"])
        generation = lake.heartbeat(group, active)["generation"]
        asks = {"member_id": "standby", "generation": generation}
        (first,) = lake.consume(topic, group, "active", member_id="active", generation=generation)
        lake.ack(first)
        assert lake.consume(topic, group, "standby", **asks) == []
        lake.join(group, "active", topic, session_ms=SHORT_MS)
        eventually(lambda: beating.latest["assigned_partitions"] == {topic: [0]})
        taken = until_taken(lake, topic, group, "standby", member_id="standby", generation=beating.latest["generation"])
    assert (first.value, taken.value) == ("one", "two")


# Load-balancing by asking ---------------------------------------------------------------------------------------------


def test_first_ask_first_served(lake: Installation) -> None:
    """Consumers share one stream, first come, first served: the first caller gets the first message."""
    topic, group = lake.topic(), fresh("group")
    lake.begin(topic, group)
    first = in_background(lake.consume, topic, group, "a", wait_ms=10_000)
    _is_waiting(lake, topic)
    second = in_background(lake.consume, topic, group, "b", wait_ms=10_000)
    _is_waiting(lake, topic)
    lake.publish(topic, ["one"])
    assert [each.value for each in first.result(20)] == ["one"]
    assert not second.done()
    lake.publish(topic, ["two"])
    assert [each.value for each in second.result(20)] == ["two"]


def _is_waiting(lake: Installation, topic: str) -> None:
    """Consume until nothing is returned, long enough for the earlier call to be waiting."""
    assert lake.consume(topic, fresh("other"), "observer", wait_ms=400) == []


def test_faster_consumers_consume_more(lake: Installation) -> None:
    """Dynamic: with one partition and no order among keys, a fast worker does most of the work.

    The slow one holds each message until the fast one has done five more, or all.
    """
    topic, group, count = lake.topic(), fresh("group"), 60
    lake.publish(topic, range(count))
    lake.begin(topic, group)
    done: Counter[str] = Counter()
    together = threading.Barrier(2)

    def work(owner: str) -> None:
        together.wait(10)
        while leased := lake.consume(topic, group, owner):
            if owner == "slow":
                eventually(lambda: done["fast"] >= 5 * (done["slow"] + 1) or done.total() == count - 1, within=40)
            lake.ack(leased[0])
            done[owner] += 1

    workers = [in_background(work, owner) for owner in ("slow", "fast")]
    for worker in workers:
        worker.result(60)
    assert done.total() == count
    assert done["slow"] >= 1
    assert done["fast"] > 3 * done["slow"]
    assert lake.committed(group, topic) == [count]


def test_acks_are_per_message_and_durable_when_answered(lake: Installation) -> None:
    """There, ack and commit are two steps; here, an answered ack is committed, and every server knows it."""
    topic, group = lake.topic(), fresh("group")
    lake.publish(topic, range(3))
    taken = lake.consume(topic, group, "w", 3, start_from="earliest")
    for count, leased in enumerate(taken, start=1):
        lake.ack(leased)
        assert [lake.committed(group, topic) for _ in lake.fleet.ports] == [[count]] * 2


def test_leftover_messages_are_claimed_after_a_set_time(lake: Installation) -> None:
    """Automatic failover: messages of a dead consumer can be claimed after the lease, not before."""
    topic, group = lake.topic(), fresh("group")
    lake.publish(topic, range(3))
    began = time.monotonic()
    dead = lake.consume(topic, group, "dead", 3, start_from="earliest", lease_ms=SHORT_MS)
    claimed: list[Leased] = []
    while len(claimed) < 3:
        claimed.append(taken_after(lake, began, SHORT_MS, topic, group, "w"))
        lake.ack(claimed[-1])
    assert sorted(each.offset for each in claimed) == sorted(each.offset for each in dead)
    assert {each.message["delivery"] for each in claimed} == {2}


# Seek -----------------------------------------------------------------------------------------------------------------


def _at_two_times(lake: Installation, topic: str, partitions: int = 1) -> datetime:
    """Publish `old` to each partition, and some time later `new`; return a time between the two."""
    for partition in range(partitions):
        lake.publish(topic, ["old"], partition=partition)
    between = datetime.now(UTC) + timedelta(milliseconds=10)
    eventually(lambda: datetime.now(UTC) > between + timedelta(milliseconds=10))
    for partition in range(partitions):
        lake.publish(topic, ["new"], partition=partition)
    return between


def test_seek_to_a_point_in_time(lake: Installation) -> None:
    """Consuming continues with the earliest message after the given time, in every partition."""
    topic, group = lake.topic(2), fresh("group")
    between = _at_two_times(lake, topic, 2)
    lake.begin(topic, group)
    lake.post(f"/v1/groups/{group}/seek", {"topic": topic, "timestamp": between.isoformat()})
    assert [each.value for each in lake.drain(topic, group, least=2)] == ["new", "new"]


def test_a_message_of_that_very_time_is_included(lake: Installation) -> None:
    """In the document, later than the time; here, at that time or later, so that a message's own time finds it."""
    topic, group = lake.topic(), fresh("group")
    _at_two_times(lake, topic)
    messages = lake.get(f"/v1/topics/{topic}/partitions/0/messages")["messages"]
    lake.begin(topic, group, start_from="latest")
    lake.post(f"/v1/groups/{group}/seek", {"topic": topic, "timestamp": messages[1]["appended_at"]})
    assert [each.value for each in lake.drain(topic, group, least=1)] == ["new"]


def test_a_seek_moves_the_group_and_keeps_its_members(lake: Installation) -> None:
    """There, a consumer that seeks leaves its group. Here, the group moves, and its members stay and continue."""
    topic, group = lake.topic(), fresh("group")
    members = [lake.join(group, member, topic, start_from="earliest") for member in ("a", "b")]
    lake.publish(topic, ["one"])
    assert [each.value for each in lake.drain(topic, group, "a", least=1)] == ["one"]
    lake.post(f"/v1/groups/{group}/seek", {"topic": topic, "position": "earliest"})
    assert [member["member_id"] for member in lake.describe(group)["members"]] == ["a", "b"]
    assert lake.heartbeat(group, members[0])["member_id"] == "a"
    assert until_taken(lake, topic, group, "b").value == "one"


def test_a_seek_ends_earlier_leases(lake: Installation) -> None:
    """S9: a lease from before the seek is no longer valid."""
    topic, group = lake.topic(), fresh("group")
    lake.publish(topic, ["one"])
    (held,) = lake.consume(topic, group, "w", start_from="earliest")
    lake.post(f"/v1/groups/{group}/seek", {"topic": topic, "position": "earliest"})
    late = lake.call("POST", "/v1/ack", held.naming(token=held.token))
    assert (late.status, late.code) == (409, "lease_lost")
    assert until_taken(lake, topic, group, "w2").value == "one"


# Where a stream begins ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("reset", "values"), [({}, []), ({"start_from": "earliest"}, ["old"])])
def test_auto_stream_reset(lake: Installation, reset: dict[str, Any], values: list[str]) -> None:
    """Without prior state, a group starts at the latest by default, or at the earliest if set."""
    topic, group = lake.topic(), fresh("group")
    lake.publish(topic, ["old"])
    assert [each.value for each in lake.drain(topic, group, **reset)] == values
    lake.publish(topic, ["new"])
    assert until_taken(lake, topic, group, "w").value == "new"


def test_reset_counts_only_without_prior_state(lake: Installation) -> None:
    """A group with prior state continues where it was, independent of the option."""
    topic, group = lake.topic(), fresh("group")
    lake.drain(topic, group, start_from="latest")
    lake.publish(topic, ["one"])
    lake.ack(until_taken(lake, topic, group, "w"))
    assert lake.drain(topic, group, start_from="earliest") == []
