"""Document 003, the Consumer of SeaStreamer: what it says about groups, load-balancing, failover, seek and reset.

Later, with the stream-style consumer: the modes RealTime, Resumable (a group of the host's own) and LoadBalanced,
`next` and `stream`, `assign` and `unassign`, `rewind`, the automatic ack and commit modes (Immediate, Delayed, Rolling,
Disabled) and their intervals, and consumer ids that are made up by the client.
"""

from __future__ import annotations

import functools
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
    until_taken,
)
from tests.kit.waiting import eventually

# The group is a string, and its state is the server's -----------------------------------------------------------------


def test_a_group_is_all_that_matters_when_one_reconnects(lake: Installation) -> None:
    """A client that connects again, from any host, goes on where its group is: the state is kept by the server."""
    topic, group = lake.topic(), fresh("group")
    seen = Seen()
    for count in (2, 4):
        lake.publish(topic, [count - 1, count])
        # A new client each time, with an owner of its own, that knows nothing but the group's name.
        with connected(lake) as log:
            log.topic(topic).subscribe(seen.append, group=group, start_from="earliest")
            log.start()
            seen.until(count)
            eventually(functools.partial(_is_at, lake, group, topic, count))
    assert list(seen) == [1, 2, 3, 4]


def _is_at(lake: Installation, group: str, topic: str, offset: int) -> bool:
    return lake.committed(group, topic) == [offset]


def test_consumers_share_a_group_at_the_same_time(lake: Installation) -> None:
    """Several consumers of one group may be connected at once; a message is received by only one of them."""
    topic, group = lake.topic(), fresh("group")
    waits = [in_background(lake.consume, topic, group, owner, wait_ms=1500) for owner in ("a", "b", "c")]
    lake.begin(topic, group, start_from="latest")
    lake.publish(topic, ["one"])
    received = [leased.value for wait in waits for leased in wait.result(10)]
    assert received == ["one"]


# Load-balancing by partitions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("partitions", "shares"), [(2, [1, 1]), (3, [1, 2]), (1, [0, 1])])
def test_partitions_are_balanced(lake: Installation, partitions: int, shares: list[int]) -> None:
    """Two consumers: of two partitions each has one; of three one has two; of one, one stands by."""
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
    """One partition and many consumers: only the assigned one receives, until it dies and one that stood by does."""
    topic, group = lake.topic(), fresh("group")
    active = lake.join(group, "active", topic, session_ms=SHORT_MS, order="partition", start_from="earliest")
    standby = lake.join(group, "standby", topic, session_ms=SHORT_MS)
    with Beating(lake, group, standby) as beating:
        lake.publish(topic, ["one", "two"])
        generation = lake.heartbeat(group, active)["generation"]
        asks = {"member_id": "standby", "generation": generation}
        (first,) = lake.consume(topic, group, "active", member_id="active", generation=generation)
        lake.ack(first)
        assert lake.consume(topic, group, "standby", **asks) == []
        eventually(lambda: beating.latest["assigned_partitions"] == {topic: [0]}, within=5.0)
        taken = until_taken(lake, topic, group, "standby", member_id="standby", generation=beating.latest["generation"])
    assert (first.value, taken.value) == ("one", "two")


# Load-balancing by asking ---------------------------------------------------------------------------------------------


def test_first_ask_first_served(lake: Installation) -> None:
    """Consumers share one stream: whoever asked first gets the first message; in turn, if they ask again in turn."""
    topic, group = lake.topic(), fresh("group")
    lake.begin(topic, group)
    first = in_background(lake.consume, topic, group, "a", wait_ms=10_000)
    _stands_in_line(lake, topic)
    second = in_background(lake.consume, topic, group, "b", wait_ms=10_000)
    _stands_in_line(lake, topic)
    lake.publish(topic, ["one"])
    assert [each.value for each in first.result(5)] == ["one"]
    assert not second.done()
    lake.publish(topic, ["two"])
    assert [each.value for each in second.result(5)] == ["two"]


def _stands_in_line(lake: Installation, topic: str) -> None:
    """Asks for nothing that comes, for so long that whoever asked before stands in line."""
    assert lake.consume(topic, fresh("other"), "observer", wait_ms=400) == []


def test_faster_consumers_consume_more(lake: Installation) -> None:
    """Dynamic: with one partition and no order among keys, a quick worker does most of the work."""
    topic, group = lake.topic(), fresh("group")
    lake.publish(topic, range(30))
    (slow,) = lake.consume(topic, group, "slow", start_from="earliest")
    taken: Counter[str] = Counter(slow=1)
    while leased := lake.consume(topic, group, "fast"):
        lake.ack(leased[0])
        taken["fast"] += 1
    lake.ack(slow)
    assert taken == {"slow": 1, "fast": 29}
    assert lake.committed(group, topic) == [30]


def test_acks_are_per_message_and_durable_when_answered(lake: Installation) -> None:
    """Ack and commit are two steps there; here an answered ack is committed, and every server knows."""
    topic, group = lake.topic(), fresh("group")
    lake.publish(topic, range(3))
    taken = lake.consume(topic, group, "w", 3, start_from="earliest")
    for count, leased in enumerate(taken, start=1):
        lake.ack(leased)
        assert [lake.committed(group, topic) for _ in lake.fleet.ports] == [[count]] * 2


def test_leftover_messages_are_claimed_after_a_set_time(lake: Installation) -> None:
    """Automatic failover: what a dead consumer had in hand can be claimed after the lease; not before."""
    topic, group = lake.topic(), fresh("group")
    lake.publish(topic, range(3))
    dead = lake.consume(topic, group, "dead", 3, start_from="earliest", lease_ms=SHORT_MS)
    assert lake.consume(topic, group, "w", 3) == []
    claimed: list[Leased] = []
    while len(claimed) < 3:
        claimed.append(until_taken(lake, topic, group, "w"))
        lake.ack(claimed[-1])
    assert sorted(each.offset for each in claimed) == sorted(each.offset for each in dead)
    assert {each.message["delivery"] for each in claimed} == {2}


# Seek -----------------------------------------------------------------------------------------------------------------


def _at_two_times(lake: Installation, topic: str, partitions: int = 1) -> datetime:
    """Publishes `old` into each partition, and some time later `new`; a time between the two."""
    for partition in range(partitions):
        lake.publish(topic, ["old"], partition=partition)
    between = datetime.now(UTC) + timedelta(milliseconds=10)
    eventually(lambda: datetime.now(UTC) > between + timedelta(milliseconds=10))
    for partition in range(partitions):
        lake.publish(topic, ["new"], partition=partition)
    return between


def test_seek_to_a_point_in_time(lake: Installation) -> None:
    """Consuming goes on with the earliest message later than the given time, in every partition."""
    topic, group = lake.topic(2), fresh("group")
    between = _at_two_times(lake, topic, 2)
    lake.begin(topic, group)
    lake.post(f"/v1/groups/{group}/seek", {"topic": topic, "timestamp": between.isoformat()})
    assert [each.value for each in lake.drain(topic, group, least=2)] == ["new", "new"]


def test_a_message_of_that_very_time_is_included(lake: Installation) -> None:
    """The document says later than the time; ours is at that time or later, so that a message's own time finds it."""
    topic, group = lake.topic(), fresh("group")
    _at_two_times(lake, topic)
    messages = lake.get(f"/v1/topics/{topic}/partitions/0/messages")["messages"]
    lake.begin(topic, group, start_from="latest")
    lake.post(f"/v1/groups/{group}/seek", {"topic": topic, "timestamp": messages[1]["appended_at"]})
    assert [each.value for each in lake.drain(topic, group, least=1)] == ["new"]


def test_a_seek_moves_the_group_and_detaches_nobody(lake: Installation) -> None:
    """There a consumer that seeks leaves its group. Here the group moves: its members stay, and go on from there."""
    topic, group = lake.topic(), fresh("group")
    members = [lake.join(group, member, topic, start_from="earliest") for member in ("a", "b")]
    lake.publish(topic, ["one"])
    assert [each.value for each in lake.drain(topic, group, "a", least=1)] == ["one"]
    lake.post(f"/v1/groups/{group}/seek", {"topic": topic, "position": "earliest"})
    assert [member["member_id"] for member in lake.describe(group)["members"]] == ["a", "b"]
    assert lake.heartbeat(group, members[0])["member_id"] == "a"
    assert until_taken(lake, topic, group, "b").value == "one"


def test_a_seek_ends_the_leases_of_before(lake: Installation) -> None:
    """S9: what a consumer still held when its group moved is no longer its own."""
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
    """Without prior state a group begins with the latest by default, or, if wanted, with the earliest."""
    topic, group = lake.topic(), fresh("group")
    lake.publish(topic, ["old"])
    assert [each.value for each in lake.drain(topic, group, **reset)] == values
    lake.publish(topic, ["new"])
    assert until_taken(lake, topic, group, "w").value == "new"


def test_reset_counts_only_without_prior_state(lake: Installation) -> None:
    """A group that has been there before goes on where it was, whatever the option says now."""
    topic, group = lake.topic(), fresh("group")
    lake.drain(topic, group, start_from="latest")
    lake.publish(topic, ["one"])
    lake.ack(until_taken(lake, topic, group, "w"))
    assert lake.drain(topic, group, start_from="earliest") == []
