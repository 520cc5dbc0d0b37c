"""Batch handlers with `subscribe`: values, failures, exactly one row per message, and the end of a worker."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Sequence
from pathlib import Path

import psycopg
import pytest
from psycopg.types.multirange import Multirange
from psycopg.types.range import Range

import lakelog
from tests.acceptance.cli_kit import LAKELOG
from tests.acceptance.client_kit import ThreadServer
from tests.kit.process import Command, Process
from tests.kit.size import Size
from tests.kit.waiting import eventually, eventually_async

WORKER = """
import os, time, lakelog
log = lakelog.connect()
orders = log.topic("orders")

@orders.subscribe(group="billing", start_from="earliest", batch=10, batch_wait=0.1)
def bill(batch):
    print("began", len(batch), flush=True)
    while not os.path.exists("go-on"):
        time.sleep(0.02)
    print("billed", sum(batch.values), flush=True)
"""


def test_plain_and_coroutine_handlers_get_each_message_once(url: str) -> None:
    """Two groups that both receive everything, in one client over each transport."""
    with lakelog.connect(url) as log:
        topic = log.topic("work")
        topic.create(partitions=2)
        topic.publish_many([lakelog.Outgoing(n, key=f"k{n % 7}") for n in range(300)])
        plain: list[int] = []
        coroutine: list[int] = []

        @topic.subscribe(group="plain", batch=50, batch_wait=0.1, start_from="earliest", concurrency=2)
        def load(batch: lakelog.Batch[int]) -> None:
            batch.extend(20)
            for message in batch:
                if message.value % 100 == 0:
                    batch.fail(message, "a hundred")
            plain.extend(batch.values)

        @topic.subscribe(group="coroutine", batch=50, batch_wait=0.1, start_from="earliest")
        async def load_async(batch: lakelog.AsyncBatch[int]) -> None:
            await batch.extend(20)
            coroutine.extend(batch.values)
            await batch.ack()

        log.start()
        for group in ("plain", "coroutine"):
            eventually(lambda group=group: topic.lag(group) == 0, within=30, what=f"{group} is finished")
        log.stop()
        assert sorted(plain) == sorted(coroutine) == list(range(300))
        assert {letter.error for letter in topic.dead_letters("plain")} == {"a hundred"}
        counts = log.counts["work/plain"], log.counts["work/coroutine"]
        assert [(each.acked, each.dead, each.lost) for each in counts] == [(297, 3, 0), (300, 0, 0)]


async def test_handlers_of_the_async_client(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        topic = log.topic("work")
        await topic.create(partitions=2)
        await topic.publish_many(list(range(120)))
        seen: list[int] = []
        plain: list[int] = []

        @topic.subscribe(group="a", batch=30, batch_wait=0.1, start_from="earliest")
        async def load(batch: lakelog.AsyncBatch[int]) -> None:
            seen.extend(batch.values)

        @topic.subscribe(group="b", batch=30, batch_wait=0.1, start_from="earliest")
        def load_plain(batch: lakelog.Batch[int]) -> None:
            plain.extend(batch.values)
            batch.ack()

        await log.start()

        async def is_done() -> bool:
            return await topic.lag("a") + await topic.lag("b") == 0

        await eventually_async(is_done, within=30, what="both are finished")
        assert sorted(seen) == sorted(plain) == list(range(120))


def _store(database: str, group: str, runs: Sequence[lakelog.Run], good: Sequence[lakelog.Delivery[int]]) -> None:
    """Store the rows whose offsets are not stored yet, and the offsets, in one transaction."""
    with psycopg.connect(database) as db:
        for partition in sorted({run.partition for run in runs}):
            place = (group, partition)
            mine = Multirange([Range(run.offset, run.offset + run.count) for run in runs if run.partition == partition])
            db.execute("insert into loaded values (%s, %s, '{}') on conflict do nothing", place)
            found = db.execute("select offsets from loaded where (grp, partition) = (%s, %s) for update", place)
            (stored,) = found.fetchone() or ([],)
            new = [each for each in good if each.partition == partition and not any(each.offset in r for r in stored)]
            with db.cursor().copy("copy numbers from stdin") as copy:
                for each in new:
                    copy.write_row((each.value,))
            db.execute("update loaded set offsets = offsets + %s where (grp, partition) = (%s, %s)", (mine, *place))


@pytest.mark.timeout(300)
def test_each_good_row_is_loaded_once_and_the_bad_ones_are_dead_letters(migrated_database: str, size: Size) -> None:
    """Rows go into a table in batches of 500. One row of a hundred is bad, and every fifth batch fails after its
    commit, so that its rows are delivered again.
    """
    count = size.pick(ci=10_000, full=100_000)
    with psycopg.connect(migrated_database) as db:
        db.execute("create table numbers (number int)")
        db.execute(
            "create table loaded (grp text, partition int, offsets int8multirange, primary key (grp, partition))"
        )
    chance = random.Random(5)
    with lakelog.connect(migrated_database) as log:
        topic = log.topic("rows")
        topic.create(partitions=4)
        for first in range(0, count, 5000):
            topic.publish_many([lakelog.Outgoing(n, key=f"k{n % 1000}") for n in range(first, first + 5000)])
        sizes: list[int] = []
        retries = lakelog.Fixed(max=50, seconds=0.05)

        @topic.subscribe(group="g", batch=500, batch_wait=0.2, concurrency=3, start_from="earliest", retries=retries)
        def load(batch: lakelog.Batch[int]) -> None:
            sizes.append(len(batch))
            for message in batch:
                if message.value % 100 == 99:
                    batch.fail(message, "bad row")
            _store(migrated_database, "g", batch.runs, [each for each in batch if each.value % 100 != 99])
            if chance.random() < 0.2:
                raise ConnectionError("the connection broke after the commit")

        log.start()
        eventually(lambda: topic.lag("g") == 0, within=250, what="all rows are loaded")
        log.stop()
        dead = sorted(letter.offset for letter in topic.dead_letters("g"))
        assert len(dead) == count // 100 and log.counts["rows/g"].failed > count // 100
        with psycopg.connect(migrated_database) as db:
            rows = [number for (number,) in db.execute("select number from numbers order by number")]
        assert rows == [n for n in range(count) if n % 100 != 99]
        print(f"{count} rows in {len(sizes)} batches, {sum(sizes)} deliveries, {len(dead)} dead letters")


def test_a_worker_command_finishes_its_batch_at_sigterm(http_server: ThreadServer, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(WORKER)
    with lakelog.connect(http_server.url) as log:
        orders = log.topic("orders")
        orders.create()
        orders.publish_many(list(range(25)))
        output = tmp_path / "output"
        command = Command(
            argv=[LAKELOG, "worker", "app:log", "--drain", "15"], cwd=tmp_path, env={"LAKELOG_URL": http_server.url}
        )
        process = Process(command, log_path=output)
        process.start()
        try:
            eventually(lambda: "began 10" in output.read_text(), within=30, what="a batch runs")
            os.kill(process.pid, signal.SIGTERM)
            eventually(lambda: "SIGTERM received" in output.read_text(), what="the worker stops")
            (tmp_path / "go-on").touch()
            assert process.wait(timeout=20) == 0
        finally:
            process.kill9()
        said = output.read_text()
        assert said.count("began") == said.count("billed") == 1 and "billed 45" in said
        assert "10 acked, 0 failed, 0 dead-lettered" in said and orders.lag("billing") == 15
