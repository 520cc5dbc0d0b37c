"""Defaults of a client's subscriptions: arguments of `subscribe` first, then defaults, then the built-in ones."""

from __future__ import annotations

from typing import Any

import pytest

import lakelog
from lakelog.errors import InvalidRequest
from tests.kit.waiting import eventually


@pytest.mark.parametrize("connect", [lakelog.connect, lakelog.connect_async])
def test_an_argument_goes_before_a_default_and_a_default_before_the_built_in_one(connect: Any) -> None:
    retries = lakelog.Fixed(max=2)
    defaults = lakelog.Defaults(concurrency=32, ack_timeout=60, retries=5, dead_letter=False, lease=10, prefetch=7)
    topic = connect("memory://", defaults=defaults).topic("work")
    topic.subscribe(print, group="plain")
    topic.subscribe(print, group="own", concurrency=2, retries=retries, dead_letter=True, ack_timeout=5)
    topic.subscribe(print, group="limited", max_in_flight=4)
    plain, own, limited = (each.options for each in topic._state.pool.subscriptions)
    assert (plain.concurrency, plain.timeout_seconds, plain.retries, plain.dead_letter) == (32, 60.0, 5, False)
    assert (plain.lease_ms, plain.prefetch, plain.batch_size, plain.session_ms) == (10_000, 7, 50, 30_000)
    assert (own.concurrency, own.timeout_seconds, own.retries, own.dead_letter) == (2, 5.0, retries, True)
    assert own.lease_ms == 10_000 and limited.prefetch is None and limited.max_in_flight == 4


def test_without_defaults_the_built_in_ones_apply() -> None:
    topic = lakelog.connect("memory://").topic("work")
    topic.subscribe(print, group="g", concurrency=None, ack_timeout=None, lease=None)
    (options,) = (each.options for each in topic._state.pool.subscriptions)
    assert (options.concurrency, options.batch_size, options.timeout_seconds) == (1, 50, 30.0)
    assert (options.lease_ms, options.session_ms, options.retries) == (30_000, 30_000, None)


@pytest.mark.parametrize("wrong", [{"concurrency": 0}, {"ack_timeout": -1}, {"retries": "5"}, {"order": "none?"}])
def test_wrong_defaults_are_named_when_they_are_made(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match=next(iter(wrong))):
        lakelog.Defaults(**wrong)


def test_defaults_of_another_type_are_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"`defaults` must be a lakelog\.Defaults"):
        lakelog.connect("memory://", defaults={"concurrency": 5})  # type: ignore[arg-type]


def test_a_worker_runs_with_the_defaults() -> None:
    with lakelog.connect("memory://", defaults=lakelog.Defaults(retries=0, start_from="earliest")) as log:
        topic = log.topic("work")
        topic.create()
        topic.publish(1)

        @topic.subscribe(group="g")
        def fails(value: int) -> None:
            raise ValueError("fails")

        log.start()
        eventually(lambda: log.counts["work/g"].dead == 1, what="the message is a dead letter after one attempt")
        log.stop()
