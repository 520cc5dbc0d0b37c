"""Document 002, durable topics with groups (OqronKit), last part: seek and replay, operations, defaults."""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.request import urlopen

import pytest

import lakelog
from lakelog.client.worker import pool
from lakelog.client.worker.options import Subscription
from lakelog.client.worker.pool import STOP_SECONDS
from lakelog.client.worker.worker import SubscriptionWorker
from tests.acceptance.documents import Installation, Seen, connected, fresh, in_background, until_taken
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


def _seek_by_sdk(lake: Installation, events: lakelog.Topic[Any], group: str, to: datetime) -> list[int]:
    return [each.after for each in events.seek(group, to=to)]


def _seek_by_http(lake: Installation, events: lakelog.Topic[Any], group: str, to: datetime) -> list[int]:
    moved = lake.post(f"/v1/groups/{group}/seek", {"topic": events.name, "timestamp": to.isoformat()})
    return [each["to"] for each in moved["partitions"]]


@pytest.mark.parametrize("seek", [_seek_by_sdk, _seek_by_http])
def test_seek_and_replay_to_a_time(lake: Installation, seek: Any) -> None:
    """Rewind to a timestamp. The document's `replay()` of a group does the same, and is called a seek here."""
    with _read(lake, 3) as (events, group, _):
        last = list(events.read())[-1].appended_at
        eventually(lambda: datetime.now(UTC) > last + timedelta(milliseconds=5))
        then = datetime.now(UTC)
        events.publish_many(["x", "y"])
        assert _values(lake, events.name, group, 2) == ["x", "y"]
        assert seek(lake, events, group, then) == [3]
        assert _values(lake, events.name, group, 2) == ["x", "y"]
        assert seek(lake, events, group, datetime(2026, 1, 1, tzinfo=UTC)) == [0]
        assert _values(lake, events.name, group, 5) == [0, 1, 2, "x", "y"]
        assert seek(lake, events, group, datetime(2126, 1, 1, tzinfo=UTC)) == [5]
        assert _values(lake, events.name, group) == []


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
        assert lake.progress(group, events.name)[0]["stuck"]["code"] == "paused"
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
    after = datetime.now(UTC)
    granted = datetime.fromisoformat(leased.expires_at) - timedelta(seconds=30)
    assert lake.describe(group)["settings"]["dead_letter"] is True
    assert before - timedelta(seconds=1) < granted < after + timedelta(seconds=1)


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
def test_default_subscription_options(monkeypatch: pytest.MonkeyPatch, row: str, name: str, value: Any) -> None:
    """The tables of the module and of subscriptions, compared with our defaults, and with those of a subscription."""
    made: list[Any] = []
    monkeypatch.setattr(pool, "Subscription", lambda **fields: made.append(fields) or Subscription(**fields))
    lakelog.connect("http://127.0.0.1:1").topic("t").subscribe(_ignore, group="g")
    lakelog.connect_async("http://127.0.0.1:1").topic("t").subscribe(_ignore, group="g")
    assert [getattr(fields["options"], name) for fields in made] == [value, value], row
    for kind in (lakelog.Topic, lakelog.AsyncTopic):
        # None: the default of the client, which is the built-in one here.
        assert inspect.signature(kind.subscribe).parameters[name].default in (value, None), row


def _ignore(value: object) -> None: ...


def test_a_subscription_without_options_works_as_the_tables_say(lake: Installation) -> None:
    """Start at the latest message, one handler at a time, leases of 30 s, automatic acks, the retries of the group."""
    topic, group = lake.topic(), fresh("g")
    lake.publish(topic, ["old"])
    seen, running, most = Seen(), Seen(), Seen()
    held, free = threading.Event(), threading.Event()

    def handle(value: Any, delivery: lakelog.Delivery[Any]) -> None:
        running.append(value)
        most.append(len(running))
        seen.append((value, delivery.attempt))
        if value == 0:
            held.set()
            assert free.wait(20)
        running.remove(value)
        if value == 1 and delivery.attempt == 1:
            raise RuntimeError("Retry it.")

    with connected(lake) as log:
        log.topic(topic).subscribe(handle, group=group)
        log.start()
        lake.publish(topic, range(4))
        assert held.wait(10)
        leases = lake.get(f"/v1/groups/{group}/leases")["leases"]
        (lease,) = (each for each in leases if each["offsets"][0][0] == 1)
        granted, expires = (datetime.fromisoformat(lease[name]) for name in ("granted_at", "expires_at"))
        assert expires - granted == timedelta(seconds=30)
        free.set()
        eventually(lambda: lake.committed(group, topic) == [5], within=20.0)
    # A busy machine may have handled the later messages when the retry is due.
    assert [each for each in seen if each != (1, 2)] == [(0, 1), (1, 1), (2, 1), (3, 1)]
    assert seen.index((1, 2)) > seen.index((1, 1))
    assert max(most) == 1


def test_group_and_handler_are_required(lake: Installation) -> None:
    """The subscription table: `group` is required, and a subscription without a handler is none."""
    assert inspect.signature(lakelog.Topic.subscribe).parameters["group"].default is inspect.Parameter.empty
    with connected(lake) as log:
        topic: Any = log.topic(lake.topic())
        with pytest.raises(TypeError, match="group"):
            topic.subscribe(_ignore)
        topic.subscribe(group=fresh("g"))
        with pytest.raises(lakelog.errors.InvalidRequest, match="handler"):
            log.start()


def test_the_default_shutdown_timeout(lake: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    """`shutdownTimeout`: running handlers may take 25 s when the worker stops, and their messages are acked."""
    assert STOP_SECONDS == 25.0
    assert inspect.signature(lakelog.Lakelog.stop).parameters["timeout"].default == 25.0
    limits: list[float] = []
    stop = SubscriptionWorker.stop
    monkeypatch.setattr(SubscriptionWorker, "stop", lambda self, seconds: limits.append(seconds) or stop(self, seconds))
    topic, group = lake.topic(), fresh("g")
    begun, free = threading.Event(), threading.Event()

    def handle(value: Any) -> None:
        begun.set()
        assert free.wait(20)

    with lakelog.connect(lake.urls) as log:
        log.topic(topic).subscribe(handle, group=group)
        log.start()
        lake.publish(topic, ["work", "not begun"])
        assert begun.wait(10)
        stopped = in_background(log.stop)
        with pytest.raises(TimeoutError):
            stopped.result(1.0)
        free.set()
        stopped.result(10)
    assert limits == [25.0]
    assert lake.committed(group, topic) == [1]


@pytest.mark.parametrize(
    "absent",
    ["poll_interval", "reconciliation_interval", "reconciliation_batch_size", "retention_interval"],
)
def test_no_option_sets_an_interval(absent: str) -> None:
    """`pollIntervalMs`, `reconciliation…` and the like do not exist."""
    names = [*inspect.signature(lakelog.Topic.subscribe).parameters, *inspect.signature(lakelog.connect).parameters]
    assert not [name for name in names if absent in name]


def test_nothing_polls(lake: Installation) -> None:
    """A worker without work waits in one call, and a publish ends the wait: it does not ask at an interval."""
    topic, group, seen = lake.topic(), fresh("g"), Seen()
    with connected(lake) as log:
        log.topic(topic).subscribe(seen.append, group=group)
        log.start()
        # Servers update their metrics once a second, or later on a busy machine.
        _pass(1.5)
        eventually(lambda: _is_quiet(lake), within=30.0)
        lake.publish(topic, ["work"])
        assert seen.until(1, within=20.0) == ["work"]


def _is_quiet(lake: Installation) -> bool:
    before = _consumes(lake)
    _pass(4.0)
    return _consumes(lake) - before <= 1


def _pass(seconds: float) -> None:
    until = time.monotonic() + seconds
    eventually(lambda: time.monotonic() > until, within=seconds + 20)


def _consumes(lake: Installation) -> float:
    """Return the consume calls that both servers have answered."""
    pages = [urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode() for port in lake.fleet.ports]
    lines = [line for page in pages for line in page.splitlines() if line.startswith("lakelog_http_requests_total{")]
    return sum(float(line.split()[-1]) for line in lines if 'route="consume"' in line)
