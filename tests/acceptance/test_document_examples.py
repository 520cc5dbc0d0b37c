"""Each code example of the four reference documents as a Python program: over two servers, embedded, and in memory.

The embedded client works on the database of the two servers. `docs/reference/documents.md` names the statement of each
example; the other `test_document_*.py` have the statements around them.
"""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import lakelog
from lakelog.errors import LakelogError, NotOwner
from lakelog.model.lease import ConsumeRequest, LeaseAnswer, Verb
from lakelog.model.membership import JoinRequest
from tests.acceptance.documents import Installation, OrderEvent, Seen, fresh, order_events
from tests.kit.waiting import eventually

SOON = 20.0
FAST = lakelog.Fixed(max=1, seconds=0.02)


@pytest.fixture(params=["servers", "embedded", "memory"], scope="module")
def url(request: pytest.FixtureRequest) -> str:
    """Return the URL of an installation: two servers, their database without a server, or memory."""
    if request.param == "memory":
        return f"memory://{fresh('examples')}"
    lake: Installation = request.getfixturevalue("lake")
    return lake.urls if request.param == "servers" else lake.fleet.url


@pytest.fixture(scope="module")
def log(url: str) -> Iterator[lakelog.Lakelog]:
    with lakelog.connect(url) as log:
        yield log


CREATED = OrderEvent(type="order.created", order_id="ord_123", account_id="acct_1", total=99.99)
PAID = OrderEvent(type="order.paid", order_id="ord_124", account_id="acct_1", payment_id="pay_456")


def made(log: lakelog.Lakelog, values: Any = (), partitions: int = 1) -> lakelog.Topic[Any]:
    """Return a new topic with messages."""
    topic = log.topic(fresh("orders"))
    topic.create(partitions=partitions)
    if values:
        topic.publish_many(values)
    return topic


def committed(log: lakelog.Lakelog, group: str, topic: str) -> dict[int, int]:
    return {each.partition: each.committed for each in log.group(group).progress(topic)}


# DriftQ-Core ----------------------------------------------------------------------------------------------------------


def test_two_groups_at_10_and_72(log: lakelog.Lakelog) -> None:
    """One partition with the offsets 0 to 100: one group is at 10, the other at 72."""
    topic = made(log, range(101))
    for name, count in (("g1", 10), ("g2", 72)):
        with log.consumer(topic, group=fresh(name), start_from="earliest") as consumer:
            consumer.batch(count, timeout=SOON, least=count).ack()
            assert committed(log, str(consumer.group), topic.name) == {0: count}
            message = consumer.next(timeout=SOON)
            assert message is not None
            assert message.value == count


def test_the_minimal_model(log: lakelog.Lakelog) -> None:
    """Consume with (topic, group, owner); the same three ack, and another owner gets a conflict."""
    topic, group = made(log, ["work"]), log.group(fresh("g"))
    asks = ConsumeRequest(topic=topic.name, group=group.name, owner="worker-1", start_from="earliest")
    (lease,) = group.consume(asks).leases
    ack = LeaseAnswer(verb=Verb.ACK, partition=lease.partition, token=lease.token, offsets=(0,))
    (refused,) = group.answer(topic.name, "worker-2", [ack])
    assert isinstance(refused, NotOwner)
    assert committed(log, group.name, topic.name) == {0: 0}
    (answered,) = group.answer(topic.name, "worker-1", [ack])
    assert not isinstance(answered, LakelogError)
    assert committed(log, group.name, topic.name) == {0: 1}


# GoQueue --------------------------------------------------------------------------------------------------------------


def test_join_a_group(log: lakelog.Lakelog) -> None:
    """A join creates the group, and returns the member, generation 1 and its partitions."""
    topic, group = made(log, partitions=2), log.group(fresh("order-service"))
    request = JoinRequest(group=group.name, member_id="consumer-1", topics=(topic.name,), session_ms=30_000)
    joined = group.join(request)
    assert (joined.member_id, joined.generation) == ("consumer-1", 1)
    assert {name: list(own) for name, own in joined.assigned.items()} == {topic.name: [0, 1]}
    assert joined.heartbeat_ms == 10_000


def test_session_and_heartbeat_settings(log: lakelog.Lakelog) -> None:
    """The document's configuration: a session timeout of 30 s and a heartbeat every 10 s."""
    topic, group = made(log), fresh("order-service")
    with log.consumer(topic, group=group, session_timeout=30, heartbeat=10):
        (member,) = log.group(group).describe().members
    assert member.session_ms == 30_000


def test_auto_commit(log: lakelog.Lakelog) -> None:
    """Commits happen periodically. The default is every 5 s, and closing commits as well."""
    topic, group = made(log, range(3)), fresh("g")
    with log.consumer(topic, group=group, kind="cursor", commit_interval=0.05, start_from="earliest") as consumer:
        for _ in range(3):
            consumer.next(timeout=SOON)
        eventually(lambda: committed(log, group, topic.name)[0] == 2)
        assert consumer.next(timeout=0) is None
        eventually(lambda: committed(log, group, topic.name)[0] == 3)


def test_manual_commit(log: lakelog.Lakelog) -> None:
    """Poll, process each message, and commit it after processing."""
    topic, group, done = made(log, range(3)), fresh("g"), []
    with log.consumer(topic, group=group, kind="cursor", commit="manual", start_from="earliest") as consumer:
        for message in consumer.batch(100, timeout=SOON, least=3):
            done.append(message.value)
            consumer.commit(message)
            assert committed(log, group, topic.name) == {0: len(done)}
    assert done == [0, 1, 2]


def test_batch_commit(log: lakelog.Lakelog) -> None:
    """Poll, process all messages, and commit them at once."""
    topic, group = made(log, range(3)), fresh("g")
    with log.consumer(topic, group=group, kind="cursor", commit="manual", start_from="earliest") as consumer:
        assert consumer.batch(100, timeout=SOON, least=3).values == [0, 1, 2]
        assert committed(log, group, topic.name) == {0: 0}
        consumer.commit()
        assert committed(log, group, topic.name) == {0: 3}


def test_group_status(log: lakelog.Lakelog) -> None:
    """List all groups, and describe one: state, generation, members with host and partitions."""
    topic, group = made(log, partitions=6), log.group(fresh("order-service"))
    for member in ("consumer-1", "consumer-2"):
        group.join(JoinRequest(group=group.name, member_id=member, topics=(topic.name,)))
    assert group.name in [each.name for each in log.groups()]
    described = group.describe()
    assert (described.group.name, described.state, described.generation) == (group.name, "stable", 2)
    assert all(member.client_host for member in described.members)
    shares = {member.member_id: list(member.assigned[topic.name]) for member in described.members}
    assert shares == {"consumer-1": [0, 1, 2], "consumer-2": [3, 4, 5]}


def test_the_consumer_program(log: lakelog.Lakelog) -> None:
    """Poll up to 100 messages, ack those that were processed, nack the others, and stop at a signal."""
    topic, group = made(log, ["good", "bad"]), fresh("order-processor")
    stop, processed = threading.Event(), []
    before = signal.signal(signal.SIGTERM, lambda *_: stop.set())

    def process_order(message: lakelog.Delivery[Any]) -> None:
        if message.value == "bad" and message.attempt == 1:
            raise ValueError("not yet")
        processed.append(message.value)
        if len(processed) == 2:
            signal.raise_signal(signal.SIGTERM)

    try:
        with log.consumer(topic, group=group, start_from="earliest", retries=FAST) as consumer:
            while not stop.is_set():
                for message in consumer.batch(100, timeout=1.0):
                    try:
                        process_order(message)
                    except ValueError as error:
                        message.nack(reason=str(error))
                    else:
                        message.ack()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert processed == ["good", "bad"]
    assert committed(log, group, topic.name) == {0: 2}
    assert log.group(group).describe().state == "empty"


# OqronKit -------------------------------------------------------------------------------------------------------------


def test_define_a_topic(log: lakelog.Lakelog) -> None:
    """A topic with tags, retention by age and count, 16 partitions, a key function and a validation."""
    events = order_events(log)
    info = events.describe()
    assert (info.partitions, tuple(info.tags)) == (16, ("orders", "billing"))
    assert (info.retention.max_age, info.retention.max_count) == (timedelta(days=7), 100_000)
    with pytest.raises(lakelog.errors.InvalidRequest, match="order_id is required"):
        events.publish(OrderEvent(type="order.created", order_id="", account_id="acct_1"))


def test_publish_a_message(log: lakelog.Lakelog) -> None:
    """A publish with idempotency key, partition key, correlation id and headers returns the message's id."""
    events = order_events(log)
    options: dict[str, Any] = {
        "idempotency_key": "order-created:ord_123",
        "key": "acct_1",
        "correlation_id": "req_abc",
        "headers": {"source": "checkout"},
    }
    receipt = events.publish(CREATED, **options)
    (message,) = events.read()
    assert (message.id, message.value, message.key) == (receipt.id, CREATED, b"acct_1")
    assert (message.correlation_id, dict(message.headers)) == ("req_abc", {"source": "checkout"})
    again = events.publish(CREATED, **options)
    assert (again.id, again.duplicate) == (receipt.id, True)
    assert len(list(events.read())) == 1


def test_publish_a_batch(log: lakelog.Lakelog) -> None:
    """Several messages in one call, each with its own options."""
    events = order_events(log)
    batch = [
        lakelog.Outgoing(CREATED, idempotency_key="order-created:ord_124"),
        lakelog.Outgoing(PAID, idempotency_key="order-paid:ord_124"),
    ]
    assert len({receipt.partition for receipt in events.publish_many(batch)}) == 1
    assert [receipt.duplicate for receipt in events.publish_many(batch)] == [True, True]
    assert [message.value for message in events.read()] == [CREATED, PAID]


def _billing_and_analytics(events: lakelog.Topic[OrderEvent]) -> Iterator[None]:
    """Billing handles paid orders from the earliest, analytics all from the latest."""
    invoices, tracked = Seen(), Seen()
    events.publish_many([CREATED, PAID])

    @events.subscribe(
        group=fresh("billing-service"),
        concurrency=8,
        batch_size=50,
        max_in_flight=200,
        start_from="earliest",
        filter=lambda event: event.type == "order.paid",
    )
    async def bill(event: OrderEvent) -> None:
        invoices.append(event.order_id)

    @events.subscribe(group=fresh("analytics-service"), concurrency=20)
    async def track(event: OrderEvent) -> None:
        tracked.append(event.order_id)

    yield
    events.publish_many([replace(CREATED, order_id="ord_2"), replace(PAID, order_id="ord_2")])
    assert sorted(tracked.until(2)) == ["ord_2", "ord_2"]
    assert invoices.until(2) == ["ord_124", "ord_2"]


def _manual_ack(events: lakelog.Topic[OrderEvent]) -> Iterator[None]:
    """The handler acks after its side effect, and nacks a failure with a reason."""
    group, tries, reserved = fresh("warehouse-service"), Seen(), Seen()

    @events.subscribe(group=group, ack="manual", ack_timeout=60, retries=lakelog.Fixed(seconds=0.05))
    async def reserve(event: OrderEvent, delivery: lakelog.AsyncDelivery[OrderEvent]) -> None:
        tries.append((delivery.attempt, delivery.failures))
        try:
            if delivery.attempt == 1:
                raise LookupError("reservation failed")
            await delivery.ack()
            reserved.append(event.order_id)
        except LookupError as error:
            await delivery.nack(reason=str(error))

    yield
    events.publish(CREATED)
    assert reserved.until(1) == ["ord_123"]
    assert list(tries) == [(1, 0), (2, 1)]
    eventually(lambda: events.lag(group) == 0)


def _dead_letters(events: lakelog.Topic[OrderEvent]) -> Iterator[None]:
    """Retries, then a dead letter and `on_dead`; dead letters are listed, retried one by one, and all at once."""
    group, alerts, shipped, broken = fresh("shipping-service"), Seen(), Seen(), threading.Event()
    broken.set()

    def alert(delivery: lakelog.Delivery[OrderEvent], error: Exception) -> None:
        alerts.append((delivery.id, delivery.value.order_id, str(error)))

    retries = lakelog.Exponential(max=1, base_seconds=0.02, max_seconds=0.05)

    @events.subscribe(group=group, retries=retries, dead_letter=True, on_dead=alert)
    def ship(event: OrderEvent) -> None:
        if broken.is_set():
            raise RuntimeError("no carrier")
        shipped.append(event.order_id)

    yield
    orders = [replace(CREATED, order_id=name, account_id=name) for name in ("one", "two", "three")]
    receipts = events.publish_many(orders)
    expected = {(receipt.id, order.order_id, "no carrier") for receipt, order in zip(receipts, orders, strict=True)}
    assert set(alerts.until(3)) == expected

    dead = events.dead_letters(group).list(limit=50)
    assert {letter.id for letter in dead} == {receipt.id for receipt in receipts}
    assert {(letter.deliveries, letter.failures) for letter in dead} == {(2, 2)}
    assert all("no carrier" in letter.error for letter in dead)

    broken.clear()
    events.dead_letters(group).retry(dead[0].id)
    shipped.until(1)
    assert len(events.dead_letters(group).list()) == 2
    events.dead_letters(group).retry_all()
    assert sorted(shipped.until(3)) == ["one", "three", "two"]
    assert events.dead_letters(group).list() == []


def _module_defaults(events: lakelog.Topic[OrderEvent]) -> Iterator[None]:
    """A subscription without options has those of the module: ten handlers at the same time."""
    together = threading.Barrier(11)

    @events.subscribe(group=MODULE_GROUP)
    def handle(event: OrderEvent) -> None:
        together.wait(SOON)

    yield
    events.publish_many([replace(CREATED, account_id=str(n)) for n in range(10)])
    together.wait(SOON)


MODULE_GROUP = fresh("module")
SUBSCRIPTIONS = (_billing_and_analytics, _manual_ack, _dead_letters, _module_defaults)


def test_the_module_and_its_subscriptions(url: str) -> None:
    """A client with a project, an environment and defaults runs all subscriptions, each with a topic of its own."""
    defaults = lakelog.Defaults(
        concurrency=10,
        ack_timeout=30,
        retries=lakelog.Exponential(max=5, base_seconds=1, max_seconds=60),
    )
    # Over HTTP, the token decides about project and environment.
    place = {} if url.startswith("http") else {"project": "billing-platform", "environment": "production"}
    with lakelog.connect(url, defaults=defaults, **place) as log:
        topics = [order_events(log) for _ in SUBSCRIPTIONS]
        examples = [example(topic) for example, topic in zip(SUBSCRIPTIONS, topics, strict=True)]
        for example in examples:
            next(example)
        log.start()
        for example in examples:
            assert next(example, "done") == "done"
        retries = log.group(MODULE_GROUP).describe().group.settings.retries
        log.stop(5)
    assert (retries.max, retries.strategy, retries.base_ms, retries.max_ms) == (5, "exponential", 1000, 60_000)
    with lakelog.connect(url) as other:
        visible = topics[0].name in [info.name for info in other.topics()]
        assert visible == (not place), "a project and an environment separate topics"


def test_partition_by_key(log: lakelog.Lakelog) -> None:
    """32 partitions by account; a publish can name another key. Keys are texts or numbers."""
    accounts = log.topic(fresh("account-events"), key=lambda event: event["account_id"])
    accounts.create(partitions=32)
    event = {"account_id": "acct_1"}
    own = accounts.publish(event).partition
    assert accounts.publish(event, key="acct_1").partition == own
    assert len({accounts.publish(event, key=f"acct_{n}").partition for n in range(20)}) > 5
    assert accounts.publish(event, key=7).partition == accounts.publish({"account_id": 7}).partition


def test_memory_does_not_survive_the_process() -> None:
    """Another process that opens the same memory finds it empty."""
    url = f"memory://{fresh('examples')}"
    program = f"import lakelog; print(lakelog.connect({url!r}).topics())"
    with lakelog.connect(url) as log:
        made(log, ["one"])
        assert len(log.topics()) == 1
        other = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert other.stdout.strip() == "[]"


SEEKS: dict[str, tuple[Callable[[Any, str], Any], int]] = {
    "earliest": (lambda topic, group: topic.seek(group, to="earliest"), 0),
    "latest": (lambda topic, group: topic.seek(group, to="latest"), 50),
    "offset": (lambda topic, group: topic.seek(group, offset=42), 42),
    "timestamp": (lambda topic, group: topic.seek(group, to=datetime(2026, 1, 1, tzinfo=UTC)), 0),
    "message": (lambda topic, group: topic.seek(group, message_id=list(topic.read())[47].id), 47),
    "replay from a time": (lambda topic, group: topic.seek(group, to=datetime(2026, 1, 1, tzinfo=UTC)), 0),
}


def test_seek_and_replay_of_a_group(log: lakelog.Lakelog) -> None:
    """To the beginning, the end, an offset, a time, a message; `replay` of a group is a seek to a time."""
    events, group = made(log, range(50)), fresh("analytics-service")
    with log.consumer(events, group=group, start_from="earliest") as consumer:
        consumer.batch(50, timeout=SOON, least=50).ack()
    for name, (seek, offset) in SEEKS.items():
        assert [each.after for each in seek(events, group)] == [offset], name
        assert committed(log, group, events.name) == {0: offset}, name


def test_operations(log: lakelog.Lakelog) -> None:
    """Lag, stats, pause and resume of a group and of all, purge."""
    events, group = made(log, range(7)), fresh("billing-service")
    with log.consumer(events, group=group, start_from="earliest") as consumer:
        consumer.batch(3, timeout=SOON, least=3).ack()
        assert events.lag(group) == 4
        stats = events.stats()
        assert (stats.messages, stats.partitions, stats.groups[0].lag) == (7, 1, 4)
    for which in ((group,), ()):
        events.pause(*which)
        assert log.group(group).describe().status == "paused"
        events.resume(*which)
        assert log.group(group).describe().status != "paused"
    assert events.purge().removed == 7
    eventually(lambda: events.lag(group) == 0)


# SeaStreamer ----------------------------------------------------------------------------------------------------------


def test_take_and_map_a_stream(log: lakelog.Lakelog) -> None:
    """Take a number of messages of a stream, map them, and collect the results."""
    topic, number = made(log, range(5)), 3
    with log.consumer(topic, start_from="earliest") as consumer:
        items = [_process(message) for message in itertools.islice(consumer, number)]
    assert items == [0, 10, 20]


async def test_take_and_map_an_async_stream(url: str) -> None:
    """The same with the async client, as the document writes it."""
    async with lakelog.connect_async(url) as log:
        topic = log.topic(fresh("orders"))
        await topic.create()
        await topic.publish_many(range(5))
        items = []
        async with log.consumer(topic, start_from="earliest") as consumer:
            async for message in consumer:
                items.append(_process(message))
                if len(items) == 3:
                    break
    assert items == [0, 10, 20]


def _process(message: Any) -> int:
    return int(message.value) * 10
