"""Document 002, durable topics with groups (OqronKit), second part: retries, dead letters, discards, hooks.

In the document, a leader handles expired deliveries and due retries at intervals. Here the next call handles them: see
the last tests.
"""

from __future__ import annotations

import threading
import time
from datetime import datetime
from typing import Any

import pytest

import lakelog
from tests.acceptance.documents import Installation, Leased, Seen, connected, fresh, in_background, until_taken
from tests.kit.waiting import eventually

QUICK: dict[str, Any] = {"strategy": "fixed", "base_ms": 20}


def _delay_ms(lake: Installation, leased: Leased, failures: int) -> tuple[float, float]:
    """Return how long after a nack the message is due, by the clock before and after the call."""
    before = time.time()
    lake.nack(leased)
    after = time.time()
    (progress,) = lake.progress(leased.group, leased.topic).values()
    due = datetime.fromisoformat(progress["next_due_at"]).timestamp()
    assert leased.message["failures"] == failures
    return (due - after) * 1000, (due - before) * 1000


# Retries --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("retries", "delays"),
    [
        ({"strategy": "exponential", "base_ms": 60, "max_ms": 200, "jitter": 0.0}, [60, 120, 200, 200]),
        ({"strategy": "fixed", "base_ms": 80}, [80, 80, 80]),
    ],
)
def test_the_strategies(lake: Installation, retries: dict[str, Any], delays: list[int]) -> None:
    """Exponential: the base delay, doubled with each failure, up to the maximum. Fixed: always the same. S13."""
    topic, group = lake.topic(), fresh("g")
    lake.publish(topic, ["work"])
    first = lake.consume(topic, group, "w", start_from="earliest", retries={"max": 9, **retries})
    leased = first[0]
    for failures, delay in enumerate(delays):
        least, most = _delay_ms(lake, leased, failures)
        assert least - 5 <= delay <= most + 5
        leased = until_taken(lake, topic, group, "w")


def test_the_first_delay_of_the_example(lake: Installation) -> None:
    """The shipping example: three retries, 2 s at first and at most 30 s. Our delays are up to 20 % shorter."""
    topic, group = lake.topic(), fresh("shipping-service")
    lake.publish(topic, ["work"])
    retries = {"max": 3, "strategy": "exponential", "base_ms": 2000, "max_ms": 30_000}
    (leased,) = lake.consume(topic, group, "w", start_from="earliest", retries=retries)
    least, most = _delay_ms(lake, leased, 0)
    assert most >= 1600
    assert least <= 2000


@pytest.mark.parametrize("retries", [0, 2])
def test_a_message_dies_when_all_retries_are_exhausted(lake: Installation, retries: int) -> None:
    """S12: `max` retries, so one attempt more; then a dead letter, and the group continues."""
    topic, group = lake.topic(), fresh("g")
    lake.publish(topic, ["bad", "good"], key="same")
    lake.begin(topic, group, retries={"max": retries, **QUICK})
    for delivery in range(retries + 1):
        leased = until_taken(lake, topic, group, "w")
        assert (leased.value, leased.message["failures"]) == ("bad", delivery)
        lake.nack(leased, reason="no use")
    (letter,) = lake.dead(group)
    assert (letter["value"], letter["error"], letter["failures"]) == ("bad", "no use", retries + 1)
    assert until_taken(lake, topic, group, "w").value == "good"


def test_a_nack_may_name_its_own_delay(lake: Installation) -> None:
    """S13: a nack can set the delay, independent of the policy; the message is not delivered earlier."""
    topic, group = lake.topic(), fresh("g")
    lake.publish(topic, ["work"])
    (leased,) = lake.consume(topic, group, "w", start_from="earliest")
    before = time.time()
    lake.nack(leased, delay_ms=300)
    assert until_taken(lake, topic, group, "w").value == "work"
    assert time.time() - before >= 0.295


# Dead letters ---------------------------------------------------------------------------------------------------------


def test_a_dead_letter_is_stored_by_default(lake: Installation) -> None:
    """`deadLetter.enabled` is true: the message is kept with key, headers and reason."""
    topic, group = lake.topic(), fresh("g")
    lake.publish(topic, [{"n": 1}], key="k", headers={"source": "checkout"})
    (leased,) = lake.consume(topic, group, "w", start_from="earliest", retries={"max": 0})
    lake.nack(leased, reason="no carrier")
    (letter,) = lake.dead(group)
    assert (letter["value"], letter["key"], letter["headers"]) == ({"n": 1}, "k", {"source": "checkout"})
    assert (letter["error"], letter["owner"], letter["state"]) == ("no carrier", "w", "dead")
    assert lake.get(f"/v1/groups/{group}/dead-letters/{letter['id']}") == letter


def test_dead_letters_can_be_disabled(lake: Installation) -> None:
    """With `deadLetter.enabled` false, an exhausted message is not stored: it ends as discarded."""
    topic, group = lake.topic(), fresh("g")
    lake.publish(topic, ["work"])
    (leased,) = lake.consume(topic, group, "w", start_from="earliest", retries={"max": 0}, dead_letter=False)
    lake.nack(leased)
    assert lake.dead(group) == []
    (progress,) = lake.progress(group, topic).values()
    assert (progress["discarded"], progress["dead"], progress["committed"]) == (1, 0, 1)


def test_a_retried_dead_letter_is_for_its_group_alone(lake: Installation) -> None:
    """S14: it returns to its own group, with key and headers; other groups do not see it again."""
    topic, group, other = lake.topic(), fresh("g"), fresh("other")
    lake.publish(topic, ["work"], key="k", headers={"source": "checkout"})
    (leased,) = lake.consume(topic, group, "w", start_from="earliest")
    lake.nack(leased, kind="fatal")
    assert [each.value for each in lake.drain(topic, other, start_from="earliest")] == ["work"]
    (letter,) = lake.dead(group)
    assert lake.post(f"/v1/groups/{group}/dead-letters/{letter['id']}/retry")["redriven"] == 1
    again = until_taken(lake, topic, group, "w")
    assert (again.value, again.message["key"], again.message["headers"]) == ("work", "k", {"source": "checkout"})
    assert again.message["failures"] == 0

    def is_filtered() -> bool:
        assert lake.consume(topic, other, "w", wait_ms=200) == []
        return lake.total(other, topic, "filtered") == 1

    eventually(is_filtered)


def test_all_dead_letters_at_once_and_each_only_once(lake: Installation) -> None:
    """S14: retrying all moves each exactly once; retrying again finds none."""
    topic, group = lake.topic(2), fresh("g")
    lake.publish(topic, range(5))
    for leased in lake.hold(topic, group, "w", 5, start_from="earliest"):
        lake.nack(leased, kind="fatal")
    assert lake.post(f"/v1/groups/{group}/dead-letters/redrive", {"dry_run": True})["redriven"] == 5
    assert lake.post(f"/v1/groups/{group}/dead-letters/redrive", {})["redriven"] == 5
    assert lake.post(f"/v1/groups/{group}/dead-letters/redrive", {})["redriven"] == 0
    found = [until_taken(lake, topic, group, f"w{n}").value for n in range(5)]
    assert sorted(found) == list(range(5))


# Discard --------------------------------------------------------------------------------------------------------------


def test_discard_in_a_handler(lake: Installation) -> None:
    """`discard(reason)` skips retries and dead letters: the delivery ends as discarded."""
    group, tries, dead = fresh("g"), Seen(), Seen()
    with connected(lake) as log:
        events = log.topic(fresh("order-events"))
        events.create()

        @events.subscribe(group=group, on_dead=lambda delivery, error: dead.append(delivery.id))
        async def handle(order: Any, delivery: lakelog.AsyncDelivery[Any]) -> None:
            tries.append(order)
            if order == "stale":
                await delivery.discard("not wanted any more")

        log.start()
        events.publish_many(["stale", "fine"])
        tries.until(2)
        eventually(lambda: lake.committed(group, events.name) == [2])
        (progress,) = lake.progress(group, events.name).values()
    assert (progress["discarded"], progress["acked"], progress["dead"]) == (1, 1, 0)
    assert (sorted(tries), list(dead), lake.dead(group)) == (["fine", "stale"], [], [])


# Hooks ----------------------------------------------------------------------------------------------------------------


def test_hook_on_ack(lake: Installation) -> None:
    """`onAck` runs after a group has acknowledged a message: once for each, and not for a failed one."""
    group, acked, tries = fresh("g"), Seen(), Seen()
    with connected(lake) as log:
        events = log.topic(fresh("order-events"))
        events.create()

        @events.subscribe(
            group=group,
            on_ack=lambda delivery: acked.append((delivery.value, delivery.attempt)),
            retries=lakelog.Fixed(seconds=0.02),
        )
        def handle(order: Any, delivery: lakelog.Delivery[Any]) -> None:
            tries.append(order)
            if order == "twice" and delivery.attempt == 1:
                raise RuntimeError("once")

        log.start()
        events.publish_many(["once", "twice"])
        assert sorted(acked.until(2)) == [("once", 1), ("twice", 2)]
    assert len(tries) == 3


def test_hook_on_publish(lake: Installation) -> None:
    """`onPublish` runs after a publish: the messages are in the log by then. A refused message does not run it."""
    published, readable = Seen(), Seen()

    def hook(receipt: Any) -> None:
        published.append(receipt)
        readable.append([message.id for message in events.read()])

    with connected(lake) as log:
        events: Any = log.topic(fresh("order-events"), on_publish=hook)
        events.create()
        receipts = [events.publish("one"), *events.publish_many(["two", "three"])]
        with pytest.raises(lakelog.LakelogError):
            events.publish("refused", partition=7)
    assert [each.id for each in published] == [receipt.id for receipt in receipts]
    for receipt, ids in zip(published, readable, strict=True):
        assert receipt.id in ids


# Work of the document's leader ---------------------------------------------------------------------------------------


def test_a_handler_that_takes_too_long_is_nacked(lake: Installation) -> None:
    """`ackTimeoutMs`: a delivery whose handler timed out is retried."""
    group, tries, hang = fresh("g"), Seen(), threading.Event()
    with connected(lake) as log:
        events = log.topic(fresh("order-events"))
        events.create()

        @events.subscribe(group=group, ack_timeout=0.3, retries=lakelog.Fixed(max=3, seconds=0.02))
        def handle(order: Any, delivery: lakelog.Delivery[Any]) -> None:
            tries.append((delivery.attempt, delivery.failures))
            if delivery.attempt == 1:
                hang.wait(10)

        log.start()
        events.publish("work")
        assert tries.until(2)[:2] == [(1, 0), (2, 1)]
        hang.set()
        eventually(lambda: lake.committed(group, events.name) == [1])


def test_expired_deliveries_and_due_retries_need_no_leader(lake: Installation) -> None:
    """L5: expired and due messages go to waiting consumers on either server, without an interval."""
    topic, group = lake.topic(2), fresh("g")
    lake.begin(topic, group)
    lake.publish(topic, ["retried"], partition=1)
    held = until_taken(lake, topic, group, "w")
    lake.publish(topic, ["expires"], partition=0)
    until_taken(lake, topic, group, "w", lease_ms=500)
    lake.nack(held, delay_ms=500)
    waits = [in_background(lake.consume, topic, group, owner, wait_ms=20_000) for owner in ("x", "y")]
    found = [wait.result(30)[0] for wait in waits]
    assert {(each.value, each.message["delivery"]) for each in found} == {("expires", 2), ("retried", 2)}


def test_messages_that_expire_together_have_not_failed(lake: Installation) -> None:
    """S12: if an owner dies with two messages, neither has failed: each is retried alone."""
    topic, group = lake.topic(2), fresh("g")
    for partition in range(2):
        lake.publish(topic, [partition], partition=partition)
    taken: list[Leased] = []
    while len(taken) < 2:
        taken += lake.consume(topic, group, "dies", 2, start_from="earliest", retries={"max": 0}, lease_ms=600)
    again = [until_taken(lake, topic, group, owner) for owner in ("x", "y")]
    assert {(each.message["delivery"], each.message["failures"]) for each in again} == {(2, 0)}
    assert lake.dead(group) == []
