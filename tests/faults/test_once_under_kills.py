"""Subscriptions with `once` while workers are killed: one accepted run for each value.

Full size: 100,000 messages, a third with repeated values, 4 workers of which one is killed every 5 seconds, 2 servers.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

import psycopg
import pytest

import lakelog
from lakelog import errors
from lakelog.client._sync.group import Group
from tests.kit.fleet import Fleet
from tests.kit.postgres import Cluster
from tests.kit.process import Command, Process
from tests.kit.size import Size

WORKER = """
import os, sys, lakelog
url, path = sys.argv[1:]
log = lakelog.connect(url)
runs = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

@log.topic("orders").subscribe(
    group="billing", once="value.id", start_from="earliest", concurrency=64, batch_size=250, lease=2.0
)
async def bill(order):
    os.write(runs, b"%d\\n" % order["id"])

log.run()
"""


def _ids(count: int) -> list[int]:
    """Return ids of which a third repeats one of the others, in random order."""
    chance = random.Random(7)
    ids = list(range(count - count // 3))
    ids += chance.choices(ids, k=count // 3)
    chance.shuffle(ids)
    return ids


@pytest.mark.timeout(1800)
def test_one_run_of_each_value_is_accepted(cluster: Cluster, tmp_path: Path, size: Size) -> None:
    ids = _ids(size.pick(ci=1500, full=100_000))
    values, runs, program = len(set(ids)), tmp_path / "runs", tmp_path / "worker.py"
    program.write_text(WORKER)
    with (
        Fleet(cluster, servers=size.pick(ci=1, full=2)) as fleet,
        lakelog.connect(f"http://127.0.0.1:{fleet.ports[0]}") as log,
    ):
        topic = log.topic("orders")
        topic.create(partitions=4)
        for first in range(0, len(ids), 10_000):
            topic.publish_many([{"id": number} for number in ids[first : first + 10_000]])
        workers = [
            Process(
                Command(argv=[sys.executable, str(program), f"http://127.0.0.1:{port}", str(runs)]),
                log_path=tmp_path / f"worker{number}.log",
            )
            for number, port in enumerate(fleet.ports * 2)
        ]
        try:
            kills = _run_with_kills(workers, log.group("billing"), len(ids), size)
        finally:
            for worker in workers:
                worker.kill9()
        acked, filtered = _finished(log.group("billing"))
        with psycopg.connect(fleet.url) as database:
            (remembered,) = database.execute("select count(*) from lakelog.once_value").fetchone() or (0,)
    ran = [int(line) for line in runs.read_text().split()]
    assert (acked, filtered) == (values, len(ids) - values), "each ack has recorded its value"
    assert remembered == values
    assert set(ran) == set(ids)
    print(
        f"{len(ids)} messages, {values} values, {kills} kills: {acked} runs accepted, {filtered} messages filtered; "
        f"{len(ran)} runs, of which {len(ran) - acked} were repeated after a kill or not accepted"
    )


def _run_with_kills(workers: list[Process], group: Group, count: int, size: Size) -> int:
    """Run the workers until all messages are finished, and kill one of them at intervals. Return how often."""
    most, seconds = size.pick(ci=(2, 1.0), full=(10_000, 5.0))
    for worker in workers:
        worker.start()
    kills, at = 0, time.monotonic()
    while sum(_finished(group)) < count:
        if kills < most and time.monotonic() >= at + seconds:
            victim = workers[kills % len(workers)]
            victim.kill9()
            victim.start()
            kills, at = kills + 1, time.monotonic()
    return kills


def _finished(group: Group) -> tuple[int, int]:
    """Return how many messages were acked and filtered."""
    try:
        progress = group.progress()
    except errors.GroupNotFound:
        return 0, 0
    return sum(each.acked for each in progress), sum(each.filtered for each in progress)
