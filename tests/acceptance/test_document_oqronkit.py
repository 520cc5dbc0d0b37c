"""Document 002, durable topics with groups (OqronKit), first part: topics, publishing, subscriptions, manual ack.

Its examples are in `test_document_examples.py`. Failures are in `test_document_oqronkit_failures.py`;
offsets, operations and the tables of defaults in `test_document_oqronkit_operations.py`. In the document, a leader
removes old and excess messages; `test_log_retention.py` proves retention.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Any

import pytest

import lakelog
from lakelog.errors import InvalidRequest, TopicExists
from tests.acceptance.documents import Installation, OrderEvent, Seen, connected, fresh, in_background, order_events
from tests.kit.waiting import eventually


def _created(number: int, account: str = "acct_1") -> OrderEvent:
    return OrderEvent(type="order.created", order_id=f"ord_{number}", account_id=account, total=99.99)


# Topics and publishing ------------------------------------------------------------------------------------------------


def test_a_topic_has_one_partition_by_default(lake: Installation) -> None:
    """The number of partitions is 1 by default."""
    with connected(lake) as log:
        assert log.topic(fresh("t")).create().partitions == 1


def test_a_topics_name_is_unique(lake: Installation) -> None:
    """Two topics cannot have the same name; creating a topic if it is missing is not an error."""
    with connected(lake) as log:
        events = order_events(log, 1)
        with pytest.raises(TopicExists):
            events.create()
        assert events.create(partitions=7, if_missing=True).partitions == 1


def test_validation_comes_before_anything_is_sent(lake: Installation) -> None:
    """Step 1 of a publish: a message that `validate` rejects is not published, and the reason is reported."""
    with connected(lake) as log:
        events = order_events(log, 1)
        with pytest.raises(InvalidRequest, match="order_id is required"):
            events.publish(OrderEvent(type="order.created", order_id="", account_id="acct_1"))
        assert list(events.read()) == []


def test_a_key_decides_the_partition_and_no_key_takes_turns(lake: Installation) -> None:
    """Step 3: the hash of the key modulo partitions; without one, the partitions in turn. Step 4: offsets increase."""
    topic = lake.topic(4)
    keyed = lake.publish(topic, range(8), key="acct_1")
    assert len({place["partition"] for place in keyed}) == 1
    assert [place["offset"] for place in keyed] == list(range(8))
    assert {place["partition"] for place in lake.publish(topic, range(8))} == {0, 1, 2, 3}


def test_the_key_can_be_overridden_per_publish(lake: Installation) -> None:
    """A publish can use another key than the topic's function returns."""
    with connected(lake) as log:
        accounts = order_events(log, 32)
        own = accounts.publish(_created(1, "acct_1"))
        others = {accounts.publish(_created(1, "acct_1"), key=f"k{n}").partition for n in range(20)}
        same = accounts.publish(_created(1, "acct_2"), key="acct_1")
    assert same.partition == own.partition
    assert len(others) > 5


def test_a_publish_wakes_subscribers(lake: Installation) -> None:
    """Step 6: a waiting consumer on any server is notified, and does not poll at an interval.

    A server that missed a notification looks after a second. Each server publishes in every second round.
    """
    topic, group = lake.topic(), fresh("g")
    lake.begin(topic, group)
    took: list[float] = []
    for _ in range(10):
        waits = [in_background(lake.consume, topic, group, owner, wait_ms=15_000) for owner in ("w1", "w2")]
        asked = time.monotonic()
        eventually(lambda asked=asked: time.monotonic() > asked + 0.1)
        lake.publish(topic, ["one", "two"])
        published = time.monotonic()
        taken = [wait.result(10)[0] for wait in waits]
        took.append(time.monotonic() - published)
        assert {leased.value for leased in taken} == {"one", "two"}
        for leased in taken:
            lake.ack(leased)
    assert max(median(took[::2]), median(took[1::2])) < 0.3, took


def test_project_and_environment_separate_everything(lake: Installation) -> None:
    """Topics, offsets, group state and dead letters of one environment are not visible in another."""
    topic, group = lake.topic(), fresh("g")
    lake.publish(topic, ["live"])
    (leased,) = lake.consume(topic, group, "w", start_from="earliest")
    lake.nack(leased, kind="fatal")
    with lakelog.connect(lake.fleet.url, project="billing-platform", environment="staging") as other:
        assert topic not in [info.name for info in other.topics()]
        assert group not in [info.name for info in other.groups()]
        same = other.topic(topic)
        same.create()
        same.publish("staged")
        assert [message.value for message in same.read()] == ["staged"]
    assert len(lake.dead(group)) == 1
    assert lake.committed(group, topic) == [1]


# Groups ---------------------------------------------------------------------------------------------------------------


def test_the_isolation_diagram(lake: Installation) -> None:
    """Groups have independent offsets: billing and shipping have finished 142, analytics 89 and is catching up."""
    topic = lake.topic()
    groups = {fresh("billing-service"): 142, fresh("analytics-service"): 89, fresh("shipping-service"): 142}
    lake.publish(topic, range(143))
    for group, count in groups.items():
        lake.consume(topic, group, "w", count, start_from="earliest")
        lake.post("/v1/ack-cumulative", {"topic": topic, "group": group, "owner": "w", "offset": count - 1})
    assert [lake.committed(group, topic)[0] for group in groups] == [142, 89, 142]
    assert [lake.total(group, topic, "lag") for group in groups] == [1, 54, 1]


def test_processes_of_a_group_keep_the_order_of_a_key(lake: Installation) -> None:
    """S15: processes of a group compete, and the messages of a key are with one of them at a time."""
    topic, group = lake.topic(), fresh("g")
    lake.publish(topic, ["a1", "a2"], key="a")
    lake.publish(topic, ["b1"], key="b")
    first = lake.consume(topic, group, "w1", start_from="earliest")
    second = lake.consume(topic, group, "w2", 5)
    assert ([each.value for each in first], [each.value for each in second]) == (["a1"], ["b1"])
    lake.ack(first[0])
    assert [each.value for each in lake.consume(topic, group, "w2", 5)] == ["a2"]


def test_one_process_per_partition_is_a_choice(lake: Installation) -> None:
    """The document's rule, a partition's messages to one process at a time, is `partition` order here."""
    topic, group = lake.topic(), fresh("g")
    lake.publish(topic, ["a1"], key="a")
    lake.publish(topic, ["b1"], key="b")
    first = lake.consume(topic, group, "w1", start_from="earliest", order="partition")
    assert lake.consume(topic, group, "w2", 5) == []
    lake.ack(first[0])
    assert [each.value for each in lake.consume(topic, group, "w2", 5)] == ["b1"]


def test_a_filter_may_be_the_groups_own(lake: Installation) -> None:
    """Messages that do not match are skipped: by a filter expression on the server, which counts them."""
    topic, group = lake.topic(), fresh("g")
    lake.publish(topic, [{"type": "order.created"}, {"type": "order.paid"}])
    leased = lake.drain(topic, group, start_from="earliest", filter="value.type = 'order.paid'")
    assert [each.value["type"] for each in leased] == ["order.paid"]
    (progress,) = lake.progress(group, topic).values()
    assert (progress["filtered"], progress["acked"], progress["committed"]) == (1, 1, 2)


@pytest.mark.parametrize(
    ("options", "together", "held"),
    [({}, 1, 1), ({"concurrency": 6, "batch_size": 2}, 6, 6), ({"concurrency": 2, "max_in_flight": 5}, 2, 5)],
)
def test_concurrency_and_in_flight(lake: Installation, options: Mapping[str, Any], together: int, held: int) -> None:
    """`concurrency` handlers run at once, by default one; at most `max_in_flight` messages are held, by default as
    many.
    """
    topic, group = lake.topic(2), fresh("g")
    lake.publish(topic, range(12))
    began, go_on = Seen(), threading.Event()
    with connected(lake) as log:

        @log.topic(topic).subscribe(group=group, start_from="earliest", **options)
        def handle(value: int) -> None:
            began.append(value)
            go_on.wait(20)

        log.start()
        began.until(together)
        eventually(lambda: lake.total(group, topic, "leased") == held)
        assert len(began) == together
        # `batchSize`: one call claims at most this number.
        claims = [lease["offsets"] for lease in lake.get(f"/v1/groups/{group}/leases")["leases"]]
        assert all(last - first < options.get("batch_size", 50) for claim in claims for first, last in claim)
        go_on.set()
        began.until(12)


# Where a group starts -------------------------------------------------------------------------------------------------


def test_start_from(lake: Installation) -> None:
    """`latest` by default, or `earliest`, a date or an offset: the start position of a new group."""
    topic = lake.topic()
    lake.publish(topic, ["a"])
    # Times have milliseconds, and the time of a message includes the message.
    (before,) = lake.get(f"/v1/topics/{topic}/partitions/0/messages")["messages"]
    eventually(lambda: datetime.now(UTC) > datetime.fromisoformat(before["appended_at"]) + timedelta(milliseconds=5))
    between = datetime.now(UTC).isoformat()
    lake.publish(topic, ["b", "c"])
    found = {
        start: [each.value for each in lake.drain(topic, fresh("g"), start_from=start)]
        for start in ("earliest", "latest", between, 2)
    }
    assert found == {"earliest": ["a", "b", "c"], "latest": [], between: ["b", "c"], 2: ["c"]}
    assert lake.drain(topic, fresh("g")) == []


# Manual ack -----------------------------------------------------------------------------------------------------------


def test_a_manual_handler_that_forgets_is_nacked(lake: Installation) -> None:
    """Returning without ack, nack or discard is a nack, so that no message is stranded."""
    group, tries = fresh("g"), Seen()
    with connected(lake) as log:
        events = order_events(log, 1)

        @events.subscribe(group=group, ack="manual", retries=lakelog.Fixed(max=1, seconds=0.05))
        def forget(event: OrderEvent, delivery: lakelog.Delivery[OrderEvent]) -> None:
            tries.append(delivery.attempt)

        log.start()
        events.publish(_created(1))
        assert tries.until(2) == [1, 2]
        (letter,) = eventually(lambda: lake.dead(group))
    assert "without an answer" in letter["error"]


def test_the_automatic_mode_acks_and_nacks(lake: Installation) -> None:
    """The default: acked when the handler resolves, nacked when it rejects; the offset is committed after the ack."""
    group, tries = fresh("g"), Seen()
    with connected(lake) as log:
        events = order_events(log, 1)

        @events.subscribe(group=group, retries=lakelog.Fixed(max=3, seconds=0.05))
        def handle(event: OrderEvent, delivery: lakelog.Delivery[OrderEvent]) -> None:
            tries.append((event.order_id, delivery.attempt))
            if delivery.attempt == 1 and event.order_id == "ord_1":
                raise RuntimeError("once")

        log.start()
        events.publish_many([_created(1), _created(2)])
        assert tries.until(3) == [("ord_1", 1), ("ord_1", 2), ("ord_2", 1)], "the key's order is kept"
        eventually(lambda: lake.committed(group, events.name) == [2])
