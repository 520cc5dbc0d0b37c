"""The metrics of streaming queries: from Spark's progress, and the lag from the log."""

from __future__ import annotations

import itertools
import json
import urllib.request
from types import SimpleNamespace
from typing import Any

import pytest

import lakelog
from lakelog.spark.session import ConnectionSettings, client
from lakelog.spark.watching import QueryProgress, StreamWatcher, lag_of

_names = itertools.count()
ENDS = {"format": 1, "topic": "orders", "incarnation": 7, "end": {"0": 3, "1": 10}}


def progress(rows: int, **ends: Any) -> Any:
    source = SimpleNamespace(endOffset=json.dumps({**ENDS, **ends}))
    other = SimpleNamespace(endOffset="12")
    return SimpleNamespace(
        id="q1", name='co"py', numInputRows=rows, durationMs={"addBatch": 250}, sources=[other, source]
    )


class Streams:
    def __init__(self) -> None:
        self.listeners: list[Any] = []

    def addListener(self, listener: Any) -> None:
        self.listeners.append(listener)

    def removeListener(self, listener: Any) -> None:
        self.listeners.remove(listener)


@pytest.fixture
def watcher() -> Any:
    """A watcher of a topic with 20 messages in two partitions."""
    connection = ConnectionSettings(url=f"memory://watching-{next(_names)}")
    with client(connection) as log:
        log.topic("orders").create(2)
        log.topic("orders").publish_many([lakelog.Outgoing({"n": n}, partition=n % 2) for n in range(20)])
        spark: Any = SimpleNamespace(streams=Streams())
        yield StreamWatcher(spark, connection)


def test_progress_adds_up_and_keeps_the_newest_offsets() -> None:
    query = QueryProgress(id="q1", name="q1").after(progress(5)).after(progress(2, end={"0": 4}))
    assert (query.name, query.rows, query.batches, query.seconds) == ('co"py', 7, 2, {"addBatch": 0.25})
    assert query.ends == {"orders": {0: 4}}


def test_the_lag_is_that_of_the_log_when_it_is_read(watcher: StreamWatcher) -> None:
    watcher._listener.onQueryProgress(SimpleNamespace(progress=progress(13)))  # type: ignore[arg-type]
    labels = 'query="co\\"py",id="q1"'
    text = watcher.metrics()
    assert f'lakelog_spark_lag_messages{{{labels},topic="orders"}} 7\n' in text
    assert f"lakelog_spark_rows_total{{{labels}}} 13\n" in text
    assert f'lakelog_spark_batch_seconds{{{labels},phase="addBatch"}} 0.25\n' in text
    client(watcher._connection).topic("orders").publish({"n": 20})
    assert f'lakelog_spark_lag_messages{{{labels},topic="orders"}} 8\n' in watcher.metrics()
    watcher._listener.onQueryTerminated(SimpleNamespace(id="q1"))  # type: ignore[arg-type]
    assert labels not in watcher.metrics()


def test_a_counter_shows_each_row(watcher: StreamWatcher) -> None:
    """With six digits, a rate would be zero for most scrapes, and wrong for the others."""
    for _ in range(2):
        watcher._listener.onQueryProgress(SimpleNamespace(progress=progress(12_345_678)))  # type: ignore[arg-type]
    assert 'lakelog_spark_rows_total{query="co\\"py",id="q1"} 24691356\n' in watcher.metrics()


def test_a_topic_that_is_gone_does_not_hide_the_other_metrics(watcher: StreamWatcher) -> None:
    watcher._listener.onQueryProgress(SimpleNamespace(progress=progress(13, topic="gone")))  # type: ignore[arg-type]
    text = watcher.metrics()
    assert "lakelog_spark_rows_total{" in text
    assert "lakelog_spark_lag_messages{" not in text


def test_the_age_of_the_oldest_unread_message(watcher: StreamWatcher) -> None:
    log = client(watcher._connection)
    assert lag_of(log, "orders", {0: 10, 1: 10}) == (0, 0.0)
    count, seconds = lag_of(log, "orders", {})
    assert count == 20
    assert 0 < seconds < 60


def test_metrics_over_http(watcher: StreamWatcher) -> None:
    port = watcher.serve(0)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        assert b"# TYPE lakelog_spark_lag_messages gauge\n" in answer.read()
    watcher.stop()
