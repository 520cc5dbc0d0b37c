"""The repr of the client's objects in a terminal or a log is short and never shows a secret."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

import lakelog
from lakelog.client.connecting.target import Target


@dataclass
class Order:
    total: int


def test_clients_show_their_url() -> None:
    log = lakelog.connect("http://localhost:8080", token="secret-token")
    assert repr(log) == "Lakelog('http://localhost:8080')"
    assert repr(log.topic("orders")) == "Topic('orders', url='http://localhost:8080')"
    assert repr(log.topic("orders", Order)) == "Topic('orders', type=Order, url='http://localhost:8080')"
    assert repr(log.group("billing")) == "Group('billing', url='http://localhost:8080')"
    later = lakelog.connect_async("memory://shop")
    assert repr(later) == "AsyncLakelog('memory://shop')"
    assert repr(later.topic("orders")) == "AsyncTopic('orders', url='memory://shop')"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://shop:hidden@db:5432/shop", "postgresql://db:5432/shop"),
        ("postgresql://shop:hid/den@db/shop", "postgresql://db/shop"),
        ("postgresql://shop:hid?den@db/shop", "postgresql://db/shop"),
        ("postgresql://db/shop?user=shop&password=hidden", "postgresql://db/shop"),
    ],
)
def test_a_password_is_not_shown(url: str, shown: str) -> None:
    target = Target(url=url, token="hidden", url_source="", token_source="", notice=None)
    assert target.place == shown and "hidden" not in repr(target)
    assert repr(lakelog.connect(url)) == f"Lakelog({shown!r})"


def test_other_objects_are_short() -> None:
    with lakelog.connect("memory://") as log:
        topic = log.topic("orders")
        assert repr(topic.create(partitions=100)).startswith("TopicInfo(name='orders', partitions=100, retention=")
        with topic.producer() as producer:
            assert repr(producer) == "Producer('orders', buffered=0, url='memory://')"
        receipt = topic.publish("x" * 10_000, key="a")
        fetched = topic.fetch(receipt.partition)
        assert repr(fetched) == "FetchResult(1 messages, next_offset=1, log_start=0, high_watermark=1)"
        assert repr(fetched.messages[0]) == f"ReceivedMessage(id={receipt.id!r}, topic='orders', key=b'a', bytes=10000)"
        letters = topic.dead_letters("billing").where(error="timeout")
        assert repr(letters) == "DeadLetters(group='billing', topic='orders', where=\"error like '%timeout%'\")"
        assert repr(topic.subscribe(group="billing")) == "Subscribe(topic='orders', group='billing')"
        assert repr(topic.purge()) == "Purged(removed=1)"
    assert repr(lakelog.Message(value=b"x" * 10_000, key=b"a")) == "Message(key=b'a', bytes=10000)"
