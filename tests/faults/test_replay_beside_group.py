"""A replay of a long history beside a live group, killed once and continued: the group does not notice it.

Full size: a million messages at 10,000 a second, two servers, a group that gets 1,000 messages a second.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakelog
from lakelog.client._sync.topic import Topic
from tests.faults.test_rolls import p99
from tests.kit.fleet import Fleet
from tests.kit.postgres import Cluster
from tests.kit.process import Command, Process
from tests.kit.size import Size
from tests.kit.waiting import eventually

PARTITIONS = 4
BATCH = 500
LINE_BYTES = 70
"""The bytes of a line about a replayed message, at least."""

LIVE = """
import asyncio, os, sys, time, lakelog
url, path, rate = sys.argv[1], sys.argv[2], int(sys.argv[3])
seen = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

async def main():
    async with lakelog.connect_async(url) as log:
        orders = log.topic("orders")

        @orders.subscribe(group="live", start_from="latest", concurrency=64)
        async def handle(value, delivery):
            if value.startswith(b"live"):
                os.write(seen, b"%s %d %d\\n" % (value[4:], time.monotonic_ns(), delivery.attempt))

        async def publish():
            due, share = time.monotonic(), max(1, rate // 100)
            while True:
                await orders.publish_many([b"live%d" % time.monotonic_ns() for _ in range(share)])
                due += share / rate
                await asyncio.sleep(max(0.0, due - time.monotonic()))

        async with asyncio.TaskGroup() as tasks:
            publisher = tasks.create_task(publish())
            await log.run()
            publisher.cancel()

asyncio.run(main())
"""

REPLAY = """
import hashlib, os, sys, lakelog
url, path, rate = sys.argv[1], sys.argv[2], float(sys.argv[3])
seen = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def check(batch):
    lines = [
        b"%d %d %s\\n" % (each.partition, each.offset, hashlib.sha256(each.value).hexdigest().encode())
        for each in batch
    ]
    os.write(seen, b"".join(lines))

with lakelog.connect(url) as log:
    done = log.topic("orders").replay(check, name="audit", batch=500, rate=rate)
    assert done.is_complete and not done.failed, done
"""


class Live:
    """The latencies of a group, by the time at which their messages were published."""

    def __init__(self, path: Path) -> None:
        rows = [tuple(map(int, line.split())) for line in path.read_text().splitlines()]
        self._rows = rows
        self.attempts = {attempt for _, _, attempt in rows}

    def __len__(self) -> int:
        return len(self._rows)

    def between(self, *spans: tuple[int, int]) -> list[float]:
        return [
            (received - sent) / 1e9 for sent, received, _ in self._rows for first, end in spans if first <= sent < end
        ]


def _fill(topic: Topic[Any], count: int) -> None:
    for first in range(0, count, 50_000):
        numbers = range(first, min(first + 50_000, count))
        values = [hashlib.sha256(b"%d" % number).digest() * 6 for number in numbers]
        topic.publish_columns(pa.table({"key": [f"k{number % 999}" for number in numbers], "value": values}))


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _digests(topic: Topic[Any], ends: dict[int, int]) -> dict[tuple[int, int], str]:
    found: dict[tuple[int, int], str] = {}
    for partition, end in ends.items():
        at = 0
        while at < end:
            table = topic.fetch_arrow(partition, offset=at)
            for offset, value in zip(table["offset"].to_pylist(), table["value"].to_pylist(), strict=True):
                if offset < end:
                    found[partition, offset] = hashlib.sha256(value).hexdigest()
            at = table["offset"][-1].as_py() + 1
    return found


def _span(seconds: float) -> tuple[int, int]:
    began = time.monotonic_ns()
    time.sleep(seconds)
    return began, time.monotonic_ns()


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_a_live_group_does_not_notice_a_replay(cluster: Cluster, tmp_path: Path, size: Size) -> None:
    count, live_rate = size.pick(ci=6_000, full=1_000_000), size.pick(ci=200, full=1000)
    rate, alone_seconds = size.pick(ci=5000, full=10_000), size.pick(ci=1.0, full=30.0)
    seen, replayed = tmp_path / "live", tmp_path / "replayed"

    def program(name: str, text: str, *arguments: object) -> Process:
        (tmp_path / f"{name}.py").write_text(text)
        argv = [sys.executable, str(tmp_path / f"{name}.py"), *map(str, arguments)]
        return Process(Command(argv=argv), log_path=tmp_path / f"{name}.log")

    with Fleet(cluster) as fleet, lakelog.connect(f"http://127.0.0.1:{fleet.ports[0]}") as log:
        urls = [f"http://127.0.0.1:{port}" for port in fleet.ports]
        topic = log.topic("orders")
        topic.create(PARTITIONS)
        _fill(topic, count)
        live, replay = (
            program("live", LIVE, urls[0], seen, live_rate),
            program("replay", REPLAY, urls[1], replayed, rate),
        )
        try:
            live.start()
            eventually(lambda: _size(seen) > 40 * live_rate, within=30)
            alone = [_span(alone_seconds)]
            beside = _replay_killed_once(replay, lambda: _size(replayed) // LINE_BYTES, count)
            alone.append(_span(alone_seconds))
            live.terminate()
        finally:
            live.kill9()
            replay.kill9()
        progress, described = log.group("live").progress(), log.group("replay-audit").progress()
        ends = {each.partition: each.committed for each in described}
        expected = _digests(topic, ends)
    rows = [line.split() for line in replayed.read_text().splitlines()]
    got = {(int(partition), int(offset)): digest for partition, offset, digest in rows}
    group = Live(seen)
    before, during = p99(group.between(*alone)), p99(group.between(*beside))
    seconds, again = sum(end - first for first, end in beside) / 1e9, len(rows) - len(got)
    print(
        f"{len(got)} messages replayed in {seconds:.1f} s, {again} of them again after the kill; p99 of the group: "
        f"{before * 1000:.1f} ms alone, {during * 1000:.1f} ms beside the replay, ratio {during / before:.2f}; "
        f"{len(group)} live messages, attempts {group.attempts}"
    )
    assert len(got) >= count and got == expected, "every byte of the range, and nothing else (S19)"
    assert again <= 2 * rate + 2 * PARTITIONS * BATCH, "the repeats are those of the last second"
    assert group.attempts == {1}
    assert sum(each.acked for each in progress) == len(group)
    if size is Size.FULL:
        assert during <= 1.5 * before


def _replay_killed_once(replay: Process, handled: Callable[[], int], count: int) -> list[tuple[int, int]]:
    """Run the replay to its end, killed in the middle, and return when it ran."""
    begins = [_start(replay)]
    eventually(lambda: not replay.running or handled() >= count // 2, within=600, every=0.05)
    replay.kill9()
    ends = [time.monotonic_ns()]
    begins.append(_start(replay))
    assert replay.wait(timeout=600) == 0, replay.log_text()
    ends.append(time.monotonic_ns())
    return list(zip(begins, ends, strict=True))


def _start(replay: Process) -> int:
    replay.start()
    return time.monotonic_ns()
