"""Document 002, durable topics with groups (OqronKit), last part: seek and replay, operations, defaults."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import lakelog
from lakelog.client.worker.pool import STOP_SECONDS
from tests.acceptance.documents import Installation, connected, fresh, until_taken
from tests.kit.waiting import eventually


def _values(lake: Installation, topic: str, group: str, least: int = 0) -> list[Any]:
    return [each.value for each in lake.drain(topic, group, least=least)]


@contextmanager
def _read(lake: Installation, count: int = 50) -> Iterator[tuple[lakelog.Topic[Any], str, list[str]]]:
    """Yield a topic of one partition whose messages the group has read, with the ids of the messages."""
    group = fresh("analytics-service")
    with connected(lake) as log:
        events = log.topic(fresh("order-events"))
        events.create()
        receipts = events.publish_many(range(count))
        lake.drain(events.name, group, start_from="earliest")
        yield events, group, [receipt.id for receipt in receipts]


# Seek and replay ------------------------------------------------------------------------------------------------------


def test_seek_to_the_earliest(lake: Installation) -> None:
    """Reprocess from the beginning; S10: a seek starts a new position epoch."""
    with _read(lake) as (events, group, _):
        assert events.seek(group, to="earliest")[0].after == 0
        assert _values(lake, events.name, group, 50) == list(range(50))


def test_seek_to_the_latest(lake: Installation) -> None:
    """Continue with messages published from now on; those in between are skipped."""
    with _read(lake) as (events, group, _):
        events.publish_many(["skipped", "skipped"])
        events.seek(group, to="latest")
        assert _values(lake, events.name, group) == []
        events.publish("new")
        assert until_taken(lake, events.name, group, "w").value == "new"


def test_seek_to_an_offset(lake: Installation) -> None:
    """Rewind to offset 42."""
    with _read(lake) as (events, group, _):
        events.seek(group, offset=42)
        assert _values(lake, events.name, group, 8) == list(range(42, 50))


def test_seek_to_a_message(lake: Installation) -> None:
    """Rewind to a message by its id: it is delivered next."""
    with _read(lake) as (events, group, ids):
        events.seek(group, message_id=ids[47])
        assert _values(lake, events.name, group, 3) == [47, 48, 49]


@pytest.mark.parametrize("verb", ["seek", "replay"])
def test_seek_and_replay_to_a_time(lake: Installation, verb: str) -> None:
    """Rewind to a timestamp. The document's `replay()` of a group is that same thing, and here is called a seek."""
    with _read(lake, 3) as (events, group, _):
        last = list(events.read())[-1].appended_at
        eventually(lambda: datetime.now(UTC) > last + timedelta(milliseconds=5))
        then = datetime.now(UTC)
        events.publish_many(["x", "y"])
        assert _values(lake, events.name, group, 2) == ["x", "y"]
        events.seek(group, to=then)
        assert _values(lake, events.name, group, 2) == ["x", "y"]
        events.seek(group, to=datetime(2026, 1, 1, tzinfo=UTC))
        assert _values(lake, events.name, group, 5) == [0, 1, 2, "x", "y"]


def test_offsets_are_the_groups_own(lake: Installation) -> None:
    """S19: each group owns its committed offsets per partition; a seek of one moves no other."""
    topic, moved, other = lake.topic(2), fresh("moved"), fresh("other")
    lake.publish(topic, range(10))
    for group in (moved, other):
        lake.drain(topic, group, start_from="earliest")
    lake.post(f"/v1/groups/{moved}/seek", {"topic": topic, "position": "earliest"})
    assert (lake.committed(moved, topic), lake.committed(other, topic)) == ([0, 0], [5, 5])
    assert lake.drain(topic, other) == []


# Operations -----------------------------------------------------------------------------------------------------------


def test_lag_and_stats(lake: Installation) -> None:
    """Stats: messages, partitions, oldest and newest time, and per group lag, pending, dead letters, committed."""
    group, idle = fresh("billing-service"), fresh("analytics-service")
    with connected(lake) as log:
        events = log.topic(fresh("order-events"))
        events.create(partitions=2)
        for partition in range(2):
            for number in range(3):
                events.publish(number, partition=partition)
        lake.begin(events.name, idle)
        taken = lake.hold(events.name, group, "w", 4, start_from="earliest")
        lake.nack(taken[0], kind="fatal")
        lake.nack(taken[1], delay_ms=60_000)
        messages = list(events.read())
        assert events.lag(group) == 5
        stats = events.stats()
    assert (stats.messages, stats.partitions) == (6, 2)
    appended = [message.appended_at for message in messages]
    assert stats.oldest_at is not None
    assert stats.newest_at is not None
    assert abs(stats.oldest_at - min(appended)) < timedelta(milliseconds=2)
    assert abs(stats.newest_at - max(appended)) < timedelta(milliseconds=2)
    by_group = {each.group: each for each in stats.groups}
    assert set(by_group) == {group, idle}
    figures = by_group[group]
    assert (figures.lag, figures.pending, figures.dead_letters) == (5, 3, 1)
    assert dict(figures.committed) == dict(enumerate(lake.committed(group, events.name)))


def test_pause_and_resume_a_group(lake: Installation) -> None:
    """A paused group receives nothing, and continues where it was; others are not affected."""
    group, other = fresh("billing-service"), fresh("other")
    with connected(lake) as log:
        events = log.topic(fresh("order-events"))
        events.create()
        for each in (group, other):
            lake.begin(events.name, each)
        events.pause(group)
        events.publish("work")
        assert until_taken(lake, events.name, other, "w").value == "work"
        assert lake.consume(events.name, group, "w", wait_ms=300) == []
        assert "paused" in lake.progress(group, events.name)[0]["reason"]
        events.resume(group)
        assert until_taken(lake, events.name, group, "w").value == "work"


def test_pause_and_resume_every_group_of_the_topic(lake: Installation) -> None:
    """Without a group, all groups of the topic are paused, and resumed."""
    groups = [fresh("billing-service"), fresh("analytics-service")]
    with connected(lake) as log:
        events = log.topic(fresh("order-events"))
        events.create()
        for group in groups:
            lake.begin(events.name, group)
        events.pause()
        events.publish("work")
        assert [lake.consume(events.name, group, "w", wait_ms=200) for group in groups] == [[], []]
        events.resume()
        assert [until_taken(lake, events.name, group, "w").value for group in groups] == ["work", "work"]


def test_leased_messages_of_a_paused_group_can_be_finished(lake: Installation) -> None:
    """A pause stops deliveries, not answers."""
    topic, group = lake.topic(), fresh("g")
    lake.publish(topic, ["work"])
    (leased,) = lake.consume(topic, group, "w", start_from="earliest")
    lake.post(f"/v1/groups/{group}/pause", {"topic": topic})
    lake.ack(leased)
    assert lake.committed(group, topic) == [1]


def test_purge(lake: Installation) -> None:
    """Purge removes the topic's messages and returns their number; groups have nothing left to do, and offsets
    continue.
    """
    topic, group = lake.topic(), fresh("g")
    lake.publish(topic, range(7))
    lake.begin(topic, group)
    with connected(lake) as log:
        assert log.topic(topic).purge().removed == 7
    eventually(lambda: lake.total(group, topic, "lag") == 0)
    assert lake.drain(topic, group) == []
    assert lake.publish(topic, ["new"])[0]["offset"] == 7
    assert until_taken(lake, topic, group, "w").value == "new"


# Tables ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "name", "value"),
    [
        ("retries.max", "max", 3),
        ("retries.strategy", "strategy", "exponential"),
        ("retries.baseDelay", "base_ms", 1000),
        ("retries.maxDelay", "max_ms", 60_000),
    ],
)
def test_default_retries(lake: Installation, row: str, name: str, value: Any) -> None:
    """The module's table: the defaults of a group without settings."""
    group = fresh("g")
    lake.begin(lake.topic(), group)
    assert lake.describe(group)["settings"]["retries"][name] == value, row


def test_default_dead_letter_and_lease(lake: Installation) -> None:
    """`deadLetter.enabled` is true, and `lockTtlMs`, the lease, 30 s."""
    topic, group = lake.topic(), fresh("g")
    lake.publish(topic, ["work"])
    before = datetime.now(UTC)
    (leased,) = lake.consume(topic, group, "w", start_from="earliest")
    lasts = datetime.fromisoformat(leased.expires_at) - before
    assert lake.describe(group)["settings"]["dead_letter"] is True
    assert timedelta(seconds=29) < lasts < timedelta(seconds=32)


@pytest.mark.parametrize(
    ("row", "name", "value"),
    [
        ("concurrency", "concurrency", 1),
        ("batchSize", "batch_size", 50),
        ("maxInFlight: as concurrency", "max_in_flight", None),
        ("filter: optional", "filter", None),
        ("startFrom: latest", "start_from", None),
        ("ackMode", "ack", "auto"),
        ("ackTimeoutMs", "ack_timeout", 30.0),
        ("lockTtlMs", "lease", 30.0),
        ("retries: the group's", "retries", None),
        ("deadLetter: the group's", "dead_letter", None),
    ],
)
def test_default_subscription_options(row: str, name: str, value: Any) -> None:
    """The tables of the module and of subscriptions, compared with our defaults."""
    for kind in (lakelog.Topic, lakelog.AsyncTopic):
        assert inspect.signature(kind.subscribe).parameters[name].default == value, row


def test_group_and_handler_are_required() -> None:
    """The subscription table: `group` is required, and a subscription without a handler is none."""
    assert inspect.signature(lakelog.Topic.subscribe).parameters["group"].default is inspect.Parameter.empty


def test_the_default_shutdown_timeout() -> None:
    """`shutdownTimeout`: what runs may take 25 s when the worker stops."""
    assert STOP_SECONDS == 25.0
    assert inspect.signature(lakelog.Lakelog.stop).parameters["timeout"].default == 25.0


@pytest.mark.parametrize(
    "absent",
    ["poll_interval", "reconciliation_interval", "reconciliation_batch_size", "retention_interval"],
)
def test_nothing_polls(absent: str) -> None:
    """`pollIntervalMs`, `reconciliation…` and the like do not exist: who waits is woken, who asks repairs."""
    names = [*inspect.signature(lakelog.Topic.subscribe).parameters, *inspect.signature(lakelog.connect).parameters]
    assert not [name for name in names if absent in name]
