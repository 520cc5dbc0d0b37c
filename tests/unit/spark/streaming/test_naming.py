"""What a group shows of a streaming query."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.sql.streaming.datasource import ReadAllAvailable

from lakelog.spark.session import ConnectionSettings, client
from lakelog.spark.streaming.naming import NamingPartition, query_label
from lakelog.spark.streaming.reader import HandingReader, StreamReader

ID = "5a7c1d0e-0000-4000-8000-000000000001"


class Task:
    """A task with the local properties that Spark gives it."""

    def __init__(self, **properties: str) -> None:
        self.properties = {"sql.streaming.queryId": ID, **properties}

    def getLocalProperty(self, name: str) -> str | None:
        return self.properties.get(name.replace("spark.job.", ""))


@pytest.mark.parametrize(
    ("description", "label"),
    [
        (f"totals\nid = {ID}\nrunId = 77\nbatch = 0", f"spark: totals, id {ID}"),
        (f"\nid = {ID}\nrunId = 77\nbatch = 0", f"spark: id {ID}"),
        (f"<b>ä</b>\nid = {ID}\nrunId = 77", f"spark: _b____b_, id {ID}"),
        (f"{'n' * 300}\nid = {ID}", f"spark: {'n' * 100}, id {ID}"),
        ("a description of the caller", f"spark: id {ID}"),
    ],
)
def test_the_label_of_a_query_has_its_name_and_its_id(description: str, label: str) -> None:
    task: Any = Task(description=description)
    assert query_label(task) == label


def test_a_task_without_a_query_has_no_label() -> None:
    task: Any = Task()
    task.properties.clear()
    assert query_label(task) is None
    assert query_label(None) is None


def test_one_task_reports_the_query_also_if_there_is_nothing_to_read_and_then_rows_are_handed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = "memory://stream-naming"
    with client(ConnectionSettings(url=url)) as log:
        log.topic("orders").create(2)
        reader = StreamReader({"url": url, "topic": "orders", "group": "features"})
        monkeypatch.setattr("lakelog.spark.streaming.reader.signal.signal", lambda *_: None)
        start = reader.initialOffset()
        first = reader.latestOffset(start, ReadAllAvailable())
        [part] = reader.partitions(start, first)
        assert isinstance(part, NamingPartition)
        task = Task(description=f"totals\nid = {ID}\nrunId = 77")
        monkeypatch.setattr(TaskContext, "get", lambda: task)
        assert list(reader.read(part)) == []
        [member] = log.group("features").describe().members
        assert member.client_host.endswith(f"(spark: totals, id {ID})")
        log.topic("orders").publish({"n": 1})
        second = reader.latestOffset(first, ReadAllAvailable())
        parts = reader.partitions(first, second)
        assert isinstance(reader, HandingReader)
        assert not any(isinstance(each, NamingPartition) for each in parts)
        reader.stop()
