"""Document 003, the Consumer of SeaStreamer: modes, next, stream, assign, rewind, seek and commits of a pull consumer.

`test_document_seastreamer` has its statements about groups.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lakelog.errors import InvalidRequest, NotAssigned
from tests.acceptance.documents import Installation, connected, fresh
from tests.kit.waiting import eventually

SOON = 20.0


@pytest.fixture
def log(lake: Installation) -> Iterator[Any]:
    with connected(lake) as client:
        yield client


def taken(consumer: Any, count: int) -> list[Any]:
    return [consumer.next(timeout=SOON).value for _ in range(count)]


# Modes ----------------------------------------------------------------------------------------------------------------


def test_real_time_consumes_from_now_on_and_does_not_commit(lake: Installation, log: Any) -> None:
    """RealTime: it does not auto-commit, and only consumes messages from now on."""
    topic = lake.topic()
    lake.publish(topic, ["old"])
    for value in ("one", "two"):
        with log.consumer(topic, mode="real-time") as consumer:
            lake.publish(topic, [value])
            assert taken(consumer, 1) == [value]


def test_resumable_resumes_from_the_committed_sequence(lake: Installation, log: Any) -> None:
    """Resumable: when the process restarts, it resumes from the committed sequence, in a group of this host."""
    topic, host = lake.topic(), fresh("host")
    with log.consumer(topic, mode="resumable", host_id=host, start_from="earliest") as consumer:
        lake.publish(topic, range(3))
        assert taken(consumer, 2) == [0, 1]
        consumer.commit()
        group = consumer.group
    assert group == f"resumable-{host}"
    with connected(lake) as other, other.consumer(topic, mode="resumable", host_id=host) as consumer:
        assert taken(consumer, 1) == [2]


def test_the_group_of_a_host_is_found_without_being_given(lake: Installation, log: Any) -> None:
    """The group id is unique to this host or container, and the same for all its processes."""
    topic = lake.topic()
    one, two = log.consumer(topic, mode="resumable"), log.consumer(topic, mode="resumable")
    assert one.group == two.group
    assert one.group.startswith("resumable-")


def test_load_balanced_needs_a_group(lake: Installation, log: Any) -> None:
    """LoadBalanced: you should assign a consumer group manually."""
    with pytest.raises(InvalidRequest, match="group"):
        log.consumer(lake.topic(), mode="load-balanced")


def test_consumer_ids_are_made_by_the_client(lake: Installation, log: Any) -> None:
    """If unset, a consumer's id is made of host, process and a random part."""
    topic, group = lake.topic(), fresh("group")
    with log.consumer(topic, group=group), log.consumer(topic, group=group):
        members = {member["member_id"] for member in lake.describe(group)["members"]}
    assert len(members) == 2
    assert all(f"-{os.getpid()}-" in member for member in members)


# Next and stream ------------------------------------------------------------------------------------------------------


def test_next_can_be_called_from_multiple_threads(lake: Installation, log: Any) -> None:
    """`next` polls and receives one message. It can be called from multiple threads."""
    topic, group, count = lake.topic(2), fresh("group"), 40
    for partition in range(2):
        lake.publish(topic, range(partition, count, 2), partition=partition)
    seen: list[int] = []
    with log.consumer(topic, group=group, start_from="earliest") as consumer:

        def work() -> None:
            while len(seen) < count:
                if (message := consumer.next(timeout=0.5)) is not None:
                    message.ack()
                    seen.append(message.value)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert sorted(seen) == list(range(count))
    assert lake.committed(group, topic) == [count // 2] * 2


def test_a_consumer_has_one_stream_and_no_other_operation_meanwhile(lake: Installation, log: Any) -> None:
    """You cannot create multiple streams from the same consumer, nor perform any operation while streaming."""
    topic = lake.topic()
    lake.publish(topic, range(2))
    with log.consumer(topic, start_from="earliest") as consumer:
        for _ in consumer:
            with pytest.raises(InvalidRequest, match="one stream"):
                iter(consumer)
            with pytest.raises(InvalidRequest, match="one stream"):
                consumer.next()
            with pytest.raises(InvalidRequest, match="one stream"):
                consumer.rewind(0)
            break
        assert taken(consumer, 1) == [1]


# Assign, rewind, seek -------------------------------------------------------------------------------------------------


def test_an_assignment_takes_effect_on_the_next_seek_or_rewind(lake: Installation, log: Any) -> None:
    """Assigning several times assigns several shards. It takes effect on the next seek or rewind."""
    topic = lake.topic(3)
    for partition in range(3):
        lake.publish(topic, [partition], partition=partition)
    with log.consumer(topic, start_from="earliest") as consumer:
        consumer.assign(topic, 1)
        consumer.assign(topic, 2)
        assert sorted(taken(consumer, 3)) == [0, 1, 2]
        consumer.rewind(0)
        assert sorted(taken(consumer, 2)) == [1, 2]
        consumer.unassign(topic, 1)
        consumer.rewind(0)
        assert taken(consumer, 1) == [2]
        assert consumer.next(timeout=0.1) is None


def test_only_subscribed_streams_can_be_assigned(lake: Installation, log: Any) -> None:
    """You cannot assign streams that have not been subscribed; unassign refuses what is not assigned."""
    topic = lake.topic()
    consumer = log.consumer(topic)
    with pytest.raises(InvalidRequest, match="does not read"):
        consumer.assign("another", 0)
    with pytest.raises(NotAssigned):
        consumer.unassign(topic, 0)


def test_a_rewind_without_an_assignment_uses_shard_zero(lake: Installation, log: Any) -> None:
    """If the consumer is not already assigned, shard zero is rewound."""
    topic = lake.topic(2)
    for partition in range(2):
        lake.publish(topic, [f"{partition}-a", f"{partition}-b"], partition=partition)
    with log.consumer(topic) as consumer:
        consumer.rewind(1)
        assert taken(consumer, 1) == ["0-b"]


def test_a_seek_of_a_consumer_is_strictly_later(lake: Installation, log: Any) -> None:
    """It starts from the earliest message with a timestamp later than the given one, in all streams."""
    topics = [lake.topic(), lake.topic()]
    for topic in topics:
        lake.publish(topic, ["old"])
    stored = [lake.get(f"/v1/topics/{topic}/partitions/0/messages")["messages"][0] for topic in topics]
    newest = max(datetime.fromisoformat(message["appended_at"]) for message in stored)
    eventually(lambda: datetime.now(UTC) > newest + timedelta(milliseconds=10))
    for topic in topics:
        lake.publish(topic, ["new"])
    with log.consumer(*topics) as consumer:
        consumer.seek(newest)
        assert taken(consumer, 2) == ["new", "new"]
        consumer.seek(newest - timedelta(days=1))
        assert sorted(taken(consumer, 4)) == ["new", "new", "old", "old"]


def test_a_seek_without_an_assignment_covers_all_partitions(lake: Installation, log: Any) -> None:
    """A seek of a consumer that has no partition assigned moves it in all partitions."""
    topic = lake.topic(3)
    for partition in range(3):
        lake.publish(topic, [partition], partition=partition)
    with log.consumer(topic) as consumer:
        consumer.seek(datetime(2020, 1, 1, tzinfo=UTC))
        assert sorted(taken(consumer, 3)) == [0, 1, 2]


def test_a_seek_of_a_consumer_moves_its_group_and_keeps_it_a_member(lake: Installation, log: Any) -> None:
    """There, seeking detaches a consumer from its group. Here, the whole group moves, and its members stay."""
    topic, group = lake.topic(), fresh("group")
    lake.publish(topic, ["one"])
    with (
        log.consumer(topic, group=group, start_from="earliest") as consumer,
        log.consumer(topic, group=group, start_from="earliest") as other,
    ):
        consumer.next(timeout=SOON).ack()
        members = [member["member_id"] for member in lake.describe(group)["members"]]
        consumer.seek(datetime(2020, 1, 1, tzinfo=UTC))
        assert taken(other, 1) == ["one"]
        assert [member["member_id"] for member in lake.describe(group)["members"]] == members


# Commits --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("commit", "interval", "positions"),
    [("immediate", 5.0, [0, 1, 2]), ("interval", 0.05, [2]), ("rolling", 0.1, [3]), ("manual", 0.05, [0, 0, 0])],
)
def test_commit_modes(lake: Installation, log: Any, commit: Any, interval: float, positions: list[int]) -> None:
    """Immediate, delayed, rolling and disabled: when the position of what was taken is committed."""
    topic, group = lake.topic(), fresh("group")
    lake.publish(topic, range(3))
    options: dict[str, Any] = {"kind": "cursor", "commit": commit, "commit_interval": interval}
    with log.consumer(topic, group=group, start_from="earliest", **options) as consumer:
        found = []
        for n in range(3):
            assert taken(consumer, 1) == [n]
            found.append(lake.committed(group, topic)[0])
        if len(positions) == 1:
            eventually(lambda: lake.committed(group, topic) == positions)
        else:
            assert found == positions


def test_leftover_messages_of_a_dead_consumer_are_claimed_after_a_set_time(lake: Installation, log: Any) -> None:
    """Messages of another consumer can be claimed after a set time, assuming that it is dead: the lease."""
    topic, group = lake.topic(), fresh("group")
    lake.publish(topic, ["one"])
    began = time.monotonic()
    (dead,) = lake.consume(topic, group, "dead", start_from="earliest", lease_ms=1500)
    with log.consumer(topic, group=group) as consumer:
        message = consumer.next(timeout=SOON)
        assert time.monotonic() - began >= 1.5
        assert (message.value, message.offset, message.attempt) == ("one", dead.offset, 2)
        message.ack()
