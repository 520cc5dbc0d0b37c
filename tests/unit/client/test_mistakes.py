"""Mistakes that people make in calls of the client: each is refused at once, in words that say what to write."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import lakelog
from lakelog.errors import InvalidFilter, InvalidName, InvalidRequest

NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001


@pytest.fixture
def topic() -> Iterator[lakelog.Topic[Any]]:
    with lakelog.connect("memory://") as log:
        topic = log.topic("orders")
        topic.create()
        yield topic


def handle(value: Any) -> None: ...


async def handle_later(value: Any) -> bool:
    return True


def yields(delivery: Any) -> Any:
    yield delivery


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"concurrency": "8"},
            "`concurrency` must be a whole number of 1 or more, not '8'. Write concurrency=8 without",
        ),
        ({"concurrency": 0}, "of 1 or more, not 0."),
        ({"concurrency": 2.5}, "whole number"),
        ({"concurrency": True}, "not True"),
        ({"concurrency": []}, "not []"),
        ({"batch_size": "50"}, "`batch_size` must be a whole number from 1 to 10000, not '50'"),
        ({"batch_size": 10_001}, "from 1 to 10000, not 10001"),
        ({"max_in_flight": 0}, "`max_in_flight` must be a whole number of 1 or more, not 0"),
        ({"prefetch": -1}, "`prefetch` must be a whole number of 0 or more, not -1"),
        (
            {"retries": "5"},
            "`retries` must be a whole number, lakelog.Exponential(…) or lakelog.Fixed(…), not '5'. Write",
        ),
        ({"retries": lakelog.Exponential}, "`retries` must be"),
        ({"retries": 1001}, "from 0 to 1000, not 1001"),
        ({"dead_letter": "no"}, "`dead_letter` must be True or False, not 'no'"),
        ({"lease": "30"}, "`lease` must be seconds or a timedelta, from 0.1 to 43200, not '30'. Write lease=30"),
        ({"lease": float("nan")}, "not nan"),
        ({"ack_timeout": 0}, "`ack_timeout` must be seconds or a timedelta, above zero, not 0"),
        ({"session_timeout": timedelta(hours=1)}, "from 0.5 to 1800"),
        ({"heartbeat": 60}, "`heartbeat` must be shorter than `session_timeout`, which is 30 s, not 60"),
        ({"start_from": "first"}, "`start_from` must be 'earliest', 'latest', 'none', a datetime"),
        ({"start_from": NAIVE}, "`start_from` has no time zone: 2026-01-01 00:00:00. Write"),
        ({"order": "random"}, "`order` must be one of 'key', 'partition', 'none', not 'random'"),
        ({"assignor": 3}, "`assignor` must be one of"),
        ({"ack": True}, "`ack` must be 'auto' or 'manual', not True"),
        ({"filter": 3}, "`filter` must be a function of (value), not 3"),
        ({"filter": lambda: True}, "`filter` is called with (value), and <lambda> takes ()"),
        ({"filter": handle_later}, "`filter` must be a plain function, and handle_later is `async def`"),
        ({"on_dead": handle}, "`on_dead` is called with (delivery, error), and handle takes (value: 'Any') -> 'None'."),
        ({"on_ack": lambda delivery, error: None}, "`on_ack` is called with (delivery)"),
        ({"on_ack": yields}, "`on_ack` contains `yield`"),
        ({"on_ack": "print"}, "`on_ack` must be a function of (delivery), not 'print'"),
    ],
)
def test_options_of_subscribe(topic: lakelog.Topic[Any], options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        topic.subscribe(handle, **{"group": "billing", **options})
    assert said in caught.value.detail


def test_a_filter_that_cannot_be_read(topic: lakelog.Topic[Any]) -> None:
    with pytest.raises(InvalidFilter):
        topic.subscribe(handle, group="billing", filter="total >")


@pytest.mark.parametrize("group", [3, None, b"billing"])
def test_names_that_are_no_texts(topic: lakelog.Topic[Any], group: Any) -> None:
    for call in (topic.lag, topic.pause, topic.dead_letters, lambda name: topic.subscribe(handle, group=name)):
        if group is not None or call != topic.pause:
            with pytest.raises(InvalidName, match="The name of a group must be a text"):
                call(group)


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (lambda: lakelog.Exponential(max="3"), "`max` must be a whole number from 0 to 1000, not '3'"),  # type: ignore[arg-type]
        (lambda: lakelog.Exponential(base_seconds=timedelta(seconds=1)), "`base_seconds` must be a number from 0"),  # type: ignore[arg-type]
        (lambda: lakelog.Exponential(jitter=2), "`jitter` must be a number from 0 to 1, not 2"),
        (lambda: lakelog.Fixed(seconds=-1), "`seconds` must be a number from 0 to 86400, not -1"),
        (
            lambda: lakelog.Retention(max_age=3600),
            "`max_age` must be a timedelta of at least 0.001 s, not 3600. Write time",
        ),  # type: ignore[arg-type]
        (lambda: lakelog.Retention(max_count=0), "`max_count` must be a whole number of 1 or more, not 0"),
    ],
)
def test_policies(policy: Callable[[], object], said: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        policy()
    assert said in caught.value.detail


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"partitions": 0}, "`partitions` must be a whole number from 1 to 10000, not 0"),
        ({"partitions": -1}, "not -1"),
        ({"partitions": "4"}, "not '4'. Write partitions=4 without quotes"),
        ({"max_bytes": 10**20}, "`max_bytes` must be a whole number of at most 9223372036854775807"),
        (
            {"idempotency_memory": 60},
            "`idempotency_memory` must be a timedelta of at least 60 s, not 60. Write timedelta",
        ),
        ({"idempotency_memory": timedelta(0)}, "at least 60 s"),
        ({"tags": "orders"}, "`tags` must be a list of texts, not 'orders'"),
        ({"metadata": {"a": 1}}, "The values of `metadata` must be text: 'a' has 1. Write {'a': '1'}"),
        ({"key_field": 3}, "`key_field` must be a text, not 3"),
    ],
)
def test_settings_of_topics(topic: lakelog.Topic[Any], settings: dict[str, Any], said: str) -> None:
    for call in (topic.create, topic.alter):
        with pytest.raises(InvalidRequest) as caught:
            call(**settings)
        assert said in caught.value.detail


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"headers": {"attempt": 1}}, "The values of `headers` must be text: 'attempt' has 1. Write {'attempt': '1'}"),
        ({"headers": {1: "a"}}, "The keys of `headers` must be text, not 1. Write '1'"),
        ({"headers": {"a": b"x"}}, "must be text"),
        ({"headers": 3}, "`headers` must be a dict of text to text, not 3"),
        ({"headers": [("a", "b")]}, "`headers` must be a dict"),
        ({"key": 1.5}, "`key` must be text, bytes or a whole number, not 1.5"),
        ({"partition": "0"}, "`partition` must be a whole number from 0 to 9999, not '0'"),
        ({"correlation_id": 7}, "must be text, not 7"),
        ({"content_type": b"x"}, "must be text, not b'x'"),
        ({"expires": 60}, "`expires` must be a timedelta from now, or a datetime with a time zone, not 60"),
        ({"expires": NAIVE}, "`expires` has no time zone"),
    ],
)
def test_arguments_of_publish(topic: lakelog.Topic[Any], arguments: dict[str, Any], said: str) -> None:
    with topic.producer() as producer:
        for call in (topic.publish, producer.send):
            with pytest.raises(InvalidRequest) as caught:
                call("value", **arguments)
            assert said in caught.value.detail


@pytest.mark.parametrize(
    ("functions", "said"),
    [
        ({"on_publish": lambda: None}, "`on_publish` is called with (receipt), and <lambda> takes ()"),
        ({"on_publish": handle_later}, "`on_publish` must be a plain function"),
        ({"key": "account"}, "`key` must be a function of (value), not 'account'"),
        ({"validate": lambda value, more: True}, "`validate` is called with (value)"),
        ({"type": 3}, "`type` must be a class that JSON can be decoded to"),
    ],
)
def test_functions_of_topics(functions: dict[str, Any], said: str) -> None:
    with lakelog.connect("memory://") as log, pytest.raises(InvalidRequest) as caught:
        log.topic("orders", **functions)
    assert said in caught.value.detail


def test_a_validator_that_returns_nothing() -> None:
    with lakelog.connect("memory://") as log:
        topic = log.topic("orders", validate=lambda value: None)  # type: ignore[arg-type, return-value]
        topic.create()
        with pytest.raises(InvalidRequest, match="`validate` returned None, not True"):
            topic.publish("a")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda topic: topic.producer(max_batch="5"), "`max_batch` must be a whole number from 1 to 10000"),
        (lambda topic: topic.producer(linger=-1), "`linger` must be seconds or a timedelta, 0 or more, not -1"),
        (lambda topic: topic.producer(on_error=print_nothing), "`on_error` is called with (error, messages)"),
        (lambda topic: topic.producer().flush("5"), "`timeout` must be seconds"),
        (lambda topic: topic.publish_columns([{"value": "a"}]), "takes a pyarrow.Table or RecordBatch, not list"),
        (lambda topic: topic.publish_columns(pa.table({"value": [1.5]})), "column 'value' has the type double"),
        (lambda topic: topic.fetch("0"), "`partition` must be a whole number"),
        (lambda topic: topic.fetch(limit=0), "`limit` must be a whole number from 1 to 10000, not 0"),
        (lambda topic: topic.fetch(offset="5"), "`offset` must be a whole number of 0 or more, 'earliest' or 'latest'"),
        (lambda topic: topic.fetch(time="2026-01-01"), "`time` must be a datetime with a time zone"),
        (lambda topic: topic.fetch(last="5"), "`last` must be a whole number of 0 or more, not '5'. Write last=5"),
        (lambda topic: topic.fetch(wait="5"), "`wait` must be seconds"),
        (lambda topic: list(topic.read(from_={"0": 1})), "The keys of `from_` must be partitions"),
        (lambda topic: list(topic.read(from_="first")), "`from_` must be 'earliest', 'latest', a datetime"),
        (lambda topic: topic.seek("g"), "give one of `to`, `offset` and `message_id`"),
        (lambda topic: topic.seek("g", to="5"), "`to` must be 'earliest', 'latest' or a datetime"),
        (lambda topic: topic.seek("g", to="latest", partition="0"), "`partition` must be a whole number"),
        (lambda topic: topic.skip("g", partition="0", offset=5), "`partition` must be a whole number"),
        (lambda topic: topic.skip("g", partition=0, offset=-1), "`offset` must be a whole number of 0 or more"),
        (lambda topic: topic.dead_letters("g").list("5"), "`limit` must be a whole number"),
        (lambda topic: topic.dead_letters("g").list(state="gone"), "`state` must be one of 'dead', 'redriven'"),
        (lambda topic: topic.dead_letters("g").redrive(rate="5"), "`rate` must be a number of messages per second"),
        (lambda topic: topic.dead_letters("g").retry("1-0-0", value="x"), "`value` must be the new bytes, not str"),
        (lambda topic: topic.dead_letters("g").where(error=3), "`error` must be a text, not 3"),
    ],
)
def test_other_arguments(topic: lakelog.Topic[Any], call: Callable[[Any], object], said: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        call(topic)
    assert said in caught.value.detail


def print_nothing() -> None: ...


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"url": 3}, "`url` must be a text, not 3"),
        ({"timeout": "30"}, "`timeout` must be seconds or a timedelta, above zero, not '30'. Write timeout=30"),
        ({"project": None}, "The name of a project must be a text, not None"),
        ({"cells": "postgresql://x"}, "`cells` must be a dict of text to text"),
    ],
)
def test_arguments_of_connect(arguments: dict[str, Any], said: str) -> None:
    for connect in (lakelog.connect, lakelog.connect_async):
        with pytest.raises(InvalidRequest) as caught:
            connect(**{"url": "memory://", **arguments})
        assert said in caught.value.detail


def test_running_in_an_event_loop_names_the_two_ways(topic: lakelog.Topic[Any]) -> None:
    with lakelog.connect("memory://") as log:
        log.topic("orders").subscribe(handle, group="billing")

        async def inside() -> None:
            log.run()

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(InvalidRequest, match=r"connect_async\(\), or log\.start\(\)"):
                asyncio.run(inside())
