"""S20, S22: a writer killed at each step of a write over two cells, and run again with other messages.

In the end the messages of exactly one run are in the log, each once, and nothing stays staged.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from datetime import timedelta

import pytest

import lakelog
from lakelog.engine import Engine
from lakelog.maintenance.write_finisher import WriteFinisher
from lakelog.storage.postgres import migrate, open_catalog, open_cells
from tests.kit.size import Size

POINTS = {"writes.before_decision": False, "writes.after_decision": True, "writes.between_cells": True}
"""Each point, with whether the messages of the first run count if it is killed there."""
MESSAGES = 3000
NOW = timedelta(0)


def write(database: str, cells: str, write_id: str, first: int, point: str = "") -> dict[str, object] | None:
    """Return the output of the program; None if it was killed."""
    argv = [sys.executable, "-m", "tests.faults.write_once", database, cells, "orders", write_id, str(first)]
    env = {**os.environ, "LAKELOG_FAILPOINTS": f"{point}=kill@1" if point else ""}
    done = subprocess.run([*argv, str(MESSAGES)], env=env, capture_output=True, text=True, timeout=60)
    if point and done.returncode == -9:
        return None
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


async def finish(database: str, cells: dict[str, str]) -> None:
    """Do the work of the agent of any server, without the delay that it leaves to the writer."""
    engine = Engine(await open_catalog(database), await open_cells(database, cells))
    await engine.start()
    try:
        await WriteFinisher(engine, quiet=NOW).work()
    finally:
        await engine.close()


async def still_staged(database: str, cells: dict[str, str]) -> int:
    stores = await open_cells(database, cells)
    try:
        return sum([len(await store.staging.staged_writes(NOW)) for store in stores.values()])
    finally:
        for store in stores.values():
            await store.close()


@pytest.mark.timeout(240)
def test_s20_a_write_killed_anywhere_happens_once(database: str, second_database: str, size: Size) -> None:
    others = {"b": second_database}
    cells = json.dumps(others)
    asyncio.run(migrate(database, others))
    expected: list[str] = []
    with lakelog.connect(database, cells=others, allow_not_durable=True) as log:
        log.topic("orders").create(5)
        for number, point in enumerate(list(POINTS) * size.pick(ci=1, full=5)):
            write_id = f"query/{number}"
            assert write(database, cells, write_id, 0, point) is None
            if point == "writes.between_cells":
                asyncio.run(finish(database, others))
                assert count(log) == len(expected) + MESSAGES
            stands = POINTS[point]
            assert write(database, cells, write_id, 1_000_000) == {"count": MESSAGES, "won": not stands}
            start = 0 if stands else 1_000_000
            expected += [f"{write_id}:{n}" for n in range(start, start + MESSAGES)]
        assert sorted(bytes(message.raw).decode() for message in log.topic("orders").read()) == sorted(expected)
    asyncio.run(finish(database, others))
    assert asyncio.run(still_staged(database, others)) == 0


def count(log: lakelog.Lakelog) -> int:
    return sum(info.high_watermark for info in log.topic("orders").describe().partition_list)
