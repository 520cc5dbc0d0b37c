"""Hooks of a topic: they run for all groups of a client, after those of the subscription."""

from __future__ import annotations

import pytest

import lakelog
from lakelog.errors import InvalidRequest
from tests.kit.waiting import eventually


def test_hooks_of_a_topic_run_for_all_its_groups(caplog: pytest.LogCaptureFixture) -> None:
    told: list[str] = []

    def on_ack(delivery: lakelog.Delivery[str]) -> None:
        told.append(f"topic acked {delivery.value}")

    async def on_dead(delivery: lakelog.AsyncDelivery[str], error: Exception) -> None:
        told.append(f"topic lost {delivery.value}: {error}")

    def fail(delivery: lakelog.Delivery[str]) -> None:
        raise RuntimeError("in the hook")

    def handle(value: str) -> None:
        if value == "bad":
            raise ValueError("no good")

    with lakelog.connect("memory://") as log:
        topic = log.topic("orders")
        topic.create()
        topic.publish_many(["good", "bad"])
        log.topic("orders", on_ack=fail)
        topic.subscribe(
            handle,
            group="single",
            start_from="earliest",
            retries=0,
            on_ack=lambda delivery: told.append(f"own acked {delivery.value}"),
        )
        topic.subscribe(lambda batch: None, group="batch", batch=2, batch_wait=0, start_from="earliest")
        # Given later, and twice.
        log.topic("orders", on_ack=on_ack, on_dead=on_dead)
        log.topic("orders", on_ack=on_ack)
        log.topic("other", on_ack=lambda delivery: told.append("other"))
        log.start()
        eventually(lambda: len(told) == 5, within=30, what="all hooks ran")
        with pytest.raises(InvalidRequest, match="hooks of topic 'orders' before the workers are started"):
            log.topic("orders", on_ack=print)
        log.topic("orders", on_ack=on_ack)
        log.stop()
    assert sorted(told) == [
        "own acked good",
        "topic acked bad",
        "topic acked good",
        "topic acked good",
        "topic lost bad: no good",
    ]
    assert told.index("own acked good") < len(told) - 1 - told[::-1].index("topic acked good")
    assert "the hook" in caplog.text and "in the hook" in caplog.text, "an exception is logged, and the others run"


def test_a_hook_that_cannot_be_called_is_refused_by_name() -> None:
    with lakelog.connect("memory://") as log:
        for name in ("on_ack", "on_dead"):
            with pytest.raises(InvalidRequest, match=f"`{name}` is called with"):
                log.topic("orders", **{name: lambda: None})  # type: ignore[call-overload]
