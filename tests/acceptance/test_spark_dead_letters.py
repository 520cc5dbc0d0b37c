"""Dead letters on Spark: as a table, repaired by DataFrame code, redriven once, guarded against loops."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

import lakelog
from lakelog import Lakelog
from lakelog.errors import InvalidRequest
from lakelog.model.lease import ConsumeRequest, LeaseAnswer, Verb
from lakelog.spark import dead_letters, redrive
from lakelog.spark.repair.repairing import RedriveSummary
from tests.acceptance.client_kit import ThreadServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)
GROUP = "billing"


@pytest.fixture
def log(spark_server: ThreadServer) -> Iterator[Lakelog]:
    with lakelog.connect(spark_server.url) as log:
        yield log


@pytest.fixture
def name(log: Lakelog) -> str:
    """Create a topic with ten dead letters, every other one in cents."""
    found = f"t-{uuid.uuid4().hex[:8]}"
    topic = log.topic(found)
    topic.create(partitions=2)
    for n in range(10):
        value = {"n": n, "amount": "5 cents" if n % 2 else "5"}
        topic.publish(value, key=f"k{n}", headers={"source": "web"}, correlation_id=f"c{n}")
    fail_all(log, found)
    return found


def take(log: Lakelog, name: str) -> list[tuple[Any, tuple[int, ...]]]:
    """Return the leases of all messages: the lease of each partition, and its offsets."""
    found: list[tuple[Any, tuple[int, ...]]] = []
    while True:
        wish = ConsumeRequest(
            topic=name,
            group=GROUP,
            owner="w1",
            request_id=uuid.uuid4().hex,
            max_messages=1000,
            start_from="earliest",
        )
        leases = log.group(GROUP).consume(wish).leases
        if not leases:
            return found
        found += [(lease, tuple(lease.offsets())) for lease in leases]


def fail_all(log: Lakelog, name: str) -> int:
    answers = [
        LeaseAnswer(
            verb=Verb.FAIL,
            partition=lease.partition,
            token=lease.token,
            offsets=(offset,),
            reason="currency?",
            traceback="in pay",
        )
        for lease, offsets in take(log, name)
        for offset in offsets
    ]
    for answer in answers:
        log.group(GROUP).answer(name, "w1", [answer])
    return len(answers)


def repaired(spark: SparkSession, name: str) -> Any:
    from pyspark.sql.functions import col, regexp_replace

    value = regexp_replace(col("value").cast("string"), " cents", "").cast("binary")
    return dead_letters(spark, name, GROUP).withColumn("value", value)


def redriven_messages(log: Lakelog, name: str) -> dict[int, Any]:
    """Return the messages that were published again, by number."""
    topic = log.topic(name)
    found = [message for p in range(2) for message in topic.fetch(p, offset="earliest").messages]
    latest: dict[int, Any] = {}
    counts: dict[int, int] = {}
    for message in found:
        latest[message.value["n"]] = message
        counts[message.value["n"]] = counts.get(message.value["n"], 0) + 1
    return {n: message for n, message in latest.items() if counts[n] == 2}


def test_dead_letters_are_a_table(spark: SparkSession, log: Lakelog, name: str) -> None:
    table = dead_letters(spark, name, GROUP)
    letters = {letter.id: letter for letter in log.topic(name).dead_letters(GROUP).list()}
    rows = table.collect()
    assert len(rows) == len(letters) == 10 and table.rdd.getNumPartitions() == 2
    for row in rows:
        letter = letters[row["id"]]
        same = ("topic", "partition", "offset", "epoch", "error", "deliveries", "failures", "owner", "key", "lineage")
        assert row["traceback"] == letter.traceback == "in pay"
        assert all(row[field] == getattr(letter, field) for field in same)
        assert (row["group"], bytes(row["value"]), row["headers"]) == (GROUP, letter.raw, {"source": "web"})
        assert row["correlation_id"] == f"c{letter.key.decode()[1:]}" if letter.key else False
    assert table.where("error like '%currency%'").groupBy("partition").count().count() == 2
    options = f"topic '{name}', deadLetters '{GROUP}', url '{spark.conf.get('spark.lakelog.url')}'"
    spark.sql(f"create or replace temporary view dead using lakelog options ({options})")
    assert spark.sql("select count(*) as found from dead").collect()[0]["found"] == 10


def test_repaired_values_are_redriven_once_with_key_headers_and_lineage(
    spark: SparkSession, log: Lakelog, name: str
) -> None:
    """S14"""
    table = repaired(spark, name)
    planned = redrive(table, dry_run=True)
    assert (planned.redriven, planned.repaired, planned.refused, planned.dry_run) == (10, 5, 0, True)
    assert len(planned.sample) == 10 and len(log.topic(name).dead_letters(GROUP).list()) == 10
    ids = {letter.key: letter.id for letter in log.topic(name).dead_letters(GROUP).list()}
    done = redrive(table)
    assert (done.redriven, done.repaired, done.refused) == (10, 5, 0)
    again = redriven_messages(log, name)
    assert len(again) == 10
    for n, message in again.items():
        assert message.value == {"n": n, "amount": "5"}
        assert (message.key, message.headers, message.correlation_id) == (f"k{n}".encode(), {"source": "web"}, f"c{n}")
    assert redrive(table).redriven == 0, "the table is read again, and none of them is dead any more"
    assert sum(len(offsets) for _, offsets in take(log, name)) == 10
    assert {letter.id for letter in log.topic(name).dead_letters(GROUP).list(state="redriven")} == set(ids.values())


def test_values_that_a_repair_made_null_are_refused_and_stay_dead(spark: SparkSession, log: Lakelog, name: str) -> None:
    from pyspark.sql.functions import col, when

    some = when(col("value").cast("string").contains("cents"), None).otherwise(col("value"))
    done = redrive(dead_letters(spark, name, GROUP).withColumn("value", some))
    assert (done.redriven, done.repaired, done.refused) == (5, 0, 5)
    left = log.topic(name).dead_letters(GROUP).list()
    assert {each.id for each in done.refusals} == {letter.id for letter in left}
    assert {each.reason for each in done.refusals} == {
        f"Column 'value' of dead letter {letter.id} is NULL, so the repair has no value. Repair the expression, or "
        "remove the row."
        for letter in left
    }


def test_a_table_that_was_kept_redrives_nothing_twice(spark: SparkSession, log: Lakelog, name: str) -> None:
    """S14: each one once, even from an old copy of the table."""
    kept = spark.createDataFrame(dead_letters(spark, name, GROUP).toArrow())
    assert redrive(kept).redriven == 10
    done = redrive(kept)
    assert (done.redriven, done.refused) == (0, 10)
    assert "redriven already" in done.refusals[0].reason
    assert len(redriven_messages(log, name)) == 10


def test_one_that_dies_again_and_again_is_refused(spark: SparkSession, log: Lakelog, name: str) -> None:
    """S14: the loop guard counts by lineage."""
    some = dead_letters(spark, name, GROUP).where("partition = 0")
    for _ in range(2):
        assert redrive(some).redriven > 0
        fail_all(log, name)
    count = some.count()
    refused = redrive(some, max_loops=2)
    assert (refused.redriven, refused.refused) == (0, count)
    assert "2 times already" in refused.refusals[0].reason
    assert redrive(some, max_loops=2, force=True).redriven == count
    assert some.count() == 0


def test_headers_may_be_repaired_too_and_keys_may_not(spark: SparkSession, log: Lakelog, name: str) -> None:
    from pyspark.sql.functions import create_map, lit

    table = dead_letters(spark, name, GROUP).withColumn("headers", create_map(lit("source"), lit("app")))
    done = redrive(table.where("partition = 0"))
    assert done.redriven == done.repaired == len(redriven_messages(log, name)) > 0
    assert {message.headers["source"] for message in redriven_messages(log, name).values()} == {"app"}
    with pytest.raises(InvalidRequest, match="keeps keys"):
        redrive(table.withColumn("key", lit(b"other")))
    with pytest.raises(InvalidRequest, match="needs the columns"):
        redrive(table.drop("id"))


def test_a_rate_is_kept(spark: SparkSession, log: Lakelog, name: str) -> None:
    seen: list[RedriveSummary] = []
    begun = time.monotonic()
    assert redrive(dead_letters(spark, name, GROUP), rate="5/s", on_progress=seen.append).redriven == 10
    assert time.monotonic() - begun >= 1.7
    assert [each.redriven for each in seen] == list(range(1, 11))
    with pytest.raises(InvalidRequest, match="rate"):
        redrive(dead_letters(spark, name, GROUP), rate="fast")
