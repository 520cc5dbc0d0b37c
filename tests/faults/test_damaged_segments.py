"""A damaged segment from the operator's view: other partitions continue, and `describe` names the command to skip it
(L9).
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

import lakelog
from lakelog.cli.app import app
from lakelog.errors import SegmentDamaged
from lakelog.model.lease import ConsumeRequest
from lakelog.model.segment import Segment
from lakelog.storage.postgres import open_store
from tests.kit.cold import tier_by_hand
from tests.kit.fleet import LAKELOG, Fleet
from tests.kit.postgres import Cluster
from tests.kit.terminal import Terminal
from tests.kit.waiting import eventually, eventually_async

TOPIC, GROUP = "orders", "billing"
COUNT = 100
"""Messages of a segment; each of two partitions has three segments."""


@pytest.fixture
def fleet(cluster: Cluster, tmp_path: Path) -> Iterator[Fleet]:
    """Two servers and a folder as their object store."""
    with Fleet(cluster, servers=2, env={"LAKELOG_OBJECT_STORE": (tmp_path / "objects").as_uri()}) as fleet:
        yield fleet


def connect(fleet: Fleet, server: int) -> lakelog.Lakelog:
    return lakelog.connect(f"http://127.0.0.1:{fleet.ports[server]}")


def command(fleet: Fleet, line: str, *, server: int) -> str:
    """Return the output of a command in a pipe."""
    env = {"LAKELOG_URL": f"http://127.0.0.1:{fleet.ports[server]}"}
    result = CliRunner().invoke(app, shlex.split(line)[1:], env=env, prog_name="lakelog")
    assert result.exit_code == 0, result.output
    return result.output


@contextmanager
def on_terminal(fleet: Fleet, folder: Path, *, server: int) -> Iterator[Terminal]:
    env = {"LAKELOG_URL": f"http://127.0.0.1:{fleet.ports[server]}", "PATH": os.environ["PATH"]}
    env["PATH"] = f"{Path(LAKELOG).parent}{os.pathsep}{env['PATH']}"
    with Terminal(folder, env) as terminal:
        yield terminal


def tiered(fleet: Fleet, log: lakelog.Lakelog) -> list[Segment]:
    """Create three segments of each partition, whose messages exist only in files."""
    topic = log.topic(TOPIC)
    topic.create(partitions=2)
    for _ in range(3):
        for partition in range(2):
            topic.publish_many([lakelog.Outgoing(f"v{n}", partition=partition) for n in range(COUNT)])
    segments = tier_by_hand(log, TOPIC, segment_bytes=1)
    assert [(each.partition, each.first) for each in segments] == [(p, n * COUNT) for p in range(2) for n in range(3)]

    async def roll_and_drop() -> None:
        store = await open_store(fleet.url)
        try:
            await store.roll()
            await eventually_async(partial(store.rolls_drop, grace=timedelta(0)))
        finally:
            await store.close()

    asyncio.run(roll_and_drop())
    return segments


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 40] = bytes(40)
    path.write_bytes(data)


def test_L9_an_operator_gets_a_group_past_a_damaged_segment(fleet: Fleet, tmp_path: Path) -> None:
    with connect(fleet, 0) as log, connect(fleet, 0) as worker:
        segments = tiered(fleet, log)
        (broken,) = [each for each in segments if (each.partition, each.first) == (1, COUNT)]
        damage(tmp_path / "objects" / broken.path)
        seen: list[tuple[int, int]] = []

        def handle(value: str, delivery: lakelog.Delivery[str]) -> None:
            seen.append((delivery.partition, delivery.offset))

        worker.topic(TOPIC).subscribe(handle, group=GROUP, start_from="earliest", concurrency=4)
        worker.start()
        healthy = [(0, n) for n in range(3 * COUNT)] + [(1, n) for n in range(COUNT)]
        eventually(lambda: sorted(seen) == healthy, what="what can be read is delivered", within=60)

        def described(server: int) -> str:
            return command(fleet, f"lakelog groups describe {GROUP}", server=server)

        wanted = (
            r"status +unreadable\n",
            rf"^{TOPIC}/1 +100 +300 +200 +0 +0 .* unreadable$",
            rf"^{TOPIC}/0 +300 +300 +0 .* caught-up$",
            "Why messages wait",
            "Offsets 100 to 199 of topic 'orders', partition 1, cannot be read",
        )

        def lacks(server: int) -> list[str]:
            text = described(server)
            return [part for part in wanted if not re.search(part, text, re.MULTILINE)]

        for server in (0, 1):
            # Acks arrive after their handlers have ended.
            eventually(lambda server=server: not lacks(server), within=30, what=f"server {server} shows the cause")
            assert "parquet" not in described(server)
        (skip,) = re.findall(r"`(lakelog groups skip [^`]+)`", described(1))
        assert skip == f"lakelog groups skip {GROUP} {TOPIC} --partition 1 --to 200"
        assert command(fleet, f"{skip} --dry-run", server=1) == (
            "would skip 100 messages of orders/1 below offset 200 for group billing\n"
        )
        with on_terminal(fleet, tmp_path, server=1) as terminal:
            shown, code = terminal.answer(skip, "[y/N]", "n")
            assert code == 1 and "Nothing was changed." in shown
            shown, code = terminal.answer(skip, "[y/N]", "y")
        assert code == 0 and shown.splitlines() == [
            "Offsets 100 to 199 of orders/1 cannot be read: the file of their segment is",
            "damaged or missing.",
            "Skip 100 messages of orders/1 below offset 200 for group billing? [y/N]: y",
            "skipped 100 messages of orders/1 below offset 200 for group billing",
        ]
        rest = [(1, n) for n in range(2 * COUNT, 3 * COUNT)]
        eventually(lambda: sorted(seen) == sorted(healthy + rest), what="the rest is delivered", within=60)
        eventually(lambda: log.group(GROUP).lag() == 0, within=30)
        one = log.group(GROUP).progress(TOPIC)[1]
        assert (one.cut, one.acked, one.status) == (COUNT, 2 * COUNT, "caught-up")


def test_L9_a_consumer_of_damaged_partitions_alone_gets_the_way_past_them(fleet: Fleet, tmp_path: Path) -> None:
    with connect(fleet, 0) as log:
        for segment in tiered(fleet, log):
            (tmp_path / "objects" / segment.path).unlink()
        with pytest.raises(SegmentDamaged) as refused:
            wish = ConsumeRequest(topic=TOPIC, group=GROUP, owner="ann", request_id="r1", start_from="earliest")
            log.group(GROUP).consume(wish)
        assert "`lakelog groups skip billing orders --partition" in refused.value.detail
        assert "parquet" not in str(refused.value.subject) + refused.value.detail


def test_L9_a_group_continues_by_itself_when_the_file_is_restored(fleet: Fleet, tmp_path: Path) -> None:
    with connect(fleet, 0) as log, connect(fleet, 0) as worker:
        (broken, *_) = tiered(fleet, log)
        path = tmp_path / "objects" / broken.path
        backup = path.read_bytes()
        damage(path)
        seen: list[tuple[int, int]] = []

        def handle(value: str, delivery: lakelog.Delivery[str]) -> None:
            seen.append((delivery.partition, delivery.offset))

        worker.topic(TOPIC).subscribe(handle, group=GROUP, start_from="earliest", concurrency=4)
        worker.start()
        eventually(lambda: len(seen) == 3 * COUNT, within=60)
        path.write_bytes(backup)
        eventually(lambda: len(seen) == 6 * COUNT, within=60)
        assert log.group(GROUP).progress(TOPIC)[0].cut == 0
