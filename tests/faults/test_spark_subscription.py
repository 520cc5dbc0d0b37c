"""A subscription on a Spark cluster with failing and killing messages: the others are acked once, in order.

Full size: 200,000 messages on one master and two workers, 2 % failing twice, 0.5 % always, 0.05 % killing their
process; then a thousand of the dead letters are repaired by an expression and redriven in one call. 2026-11-15, 2
cores: 198,900 acked, 1,100 dead, 400 processes killed, 97 rounds, 1,981 messages/s beside another test run.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

import lakelog
from lakelog import Lakelog
from lakelog.spark import dead_letters, redrive, subscribe
from tests.faults.spark_handler import Run, handler_in, runs_in
from tests.kit.fleet import Fleet
from tests.kit.postgres import Cluster
from tests.kit.size import Size
from tests.kit.spark import SparkCluster, local_session

TOPIC, GROUP = "orders", "scoring"
RETRIES = lakelog.Exponential(max=3, base_seconds=0.2, max_seconds=1.0)
SHARES = {"shaky": 0.02, "bad": 0.005, "deadly": 0.0005}
EXECUTORS = {"spark.executor.memory": "1g", "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1"}


@pytest.mark.timeout(1500)
def test_bad_messages_stop_nothing_and_are_repaired(cluster: Cluster, size: Size, tmp_path: Path) -> None:
    """S11, S14, S15"""
    total, keys = size.pick(ci=4_000, full=200_000), size.pick(ci=500, full=10_000)
    values = chosen(total)
    lost = {number for number, value in enumerate(values) if value.startswith(("bad", "deadly"))}
    folder = tmp_path / "runs"
    folder.mkdir()
    with Fleet(cluster, servers=1) as fleet, SparkCluster() as standalone:
        url = f"http://127.0.0.1:{fleet.ports[0]}"
        with (
            lakelog.connect(url) as log,
            local_session({**EXECUTORS, "spark.lakelog.url": url}, master=standalone.url) as spark,
        ):
            log.topic(TOPIC).create(partitions=4)
            publish(log, values, keys)
            handler = handler_in(str(folder))
            wish = {"retries": RETRIES, "start_from": "earliest", "until_empty": True}
            summary = subscribe(spark, TOPIC, GROUP, handler, **wish)  # type: ignore[arg-type]
            print(f"{summary}\n{total / summary.seconds:,.0f} messages/s")
            runs = runs_in(folder)
            assert sorted(run.number for run in runs) == sorted(set(range(total)) - lost), "the others run once"
            assert out_of_order(runs) == []
            assert (summary.acked, summary.dead, summary.lost) == (total - len(lost), len(lost), 0)
            letters = log.topic(TOPIC).dead_letters(GROUP).list(limit=total)
            assert {int((letter.raw or b"").split(b"-")[1]) for letter in letters} == lost
            assert {letter.failures for letter in letters} == {RETRIES.max + 1}
            progress = log.group(GROUP).progress(TOPIC)
            assert sum(each.acked for each in progress) == total - len(lost)
            assert sum(each.dead for each in progress) == len(lost)

            from pyspark.sql.functions import col, regexp_replace

            mended = regexp_replace(col("value").cast("string"), "^(bad|deadly)-", "good-").cast("binary")
            fixed = dead_letters(spark, TOPIC, GROUP).limit(1000).withColumn("value", mended)
            done = redrive(fixed)
            assert (done.redriven, done.repaired, done.refused) == (min(1000, len(lost)),) * 2 + (0,)
            summary = subscribe(spark, TOPIC, GROUP, handler, **wish)  # type: ignore[arg-type]
            assert (summary.acked, summary.failed, summary.lost) == (done.redriven, 0, 0)
            finished = {run.number for run in runs_in(folder)} & lost
            left = log.topic(TOPIC).dead_letters(GROUP).list(limit=total)
            assert len(finished) == done.redriven and len(left) == len(lost) - done.redriven
            assert log.group(GROUP).lag(TOPIC) == 0


def chosen(total: int) -> list[str]:
    """Return values by number: exactly the shares of each kind, in random order."""
    numbers = random.Random(1).sample(range(total), sum(round(share * total) for share in SHARES.values()))
    kinds = [kind for kind, share in SHARES.items() for _ in range(round(share * total))]
    special = dict(zip(numbers, kinds, strict=True))
    return [f"{special.get(number, 'good')}-{number}" for number in range(total)]


def publish(log: Lakelog, values: Sequence[str], keys: int) -> None:
    with log.topic(TOPIC).producer() as producer:
        for number, value in enumerate(values):
            producer.send(value, key=f"k{number * 7919 % keys}")


def out_of_order(runs: Sequence[Run]) -> list[tuple[Run, Run]]:
    """S15: find runs of a key that began before the run of the previous message ended, or after a later one."""
    by_key: dict[str, list[Run]] = {}
    for run in runs:
        by_key.setdefault(run.key, []).append(run)
    return [
        (first, second)
        for some in by_key.values()
        for first, second in pairwise(some)
        if second.number <= first.number or second.began < first.ended
    ]
