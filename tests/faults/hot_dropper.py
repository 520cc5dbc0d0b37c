"""Creates and drops hot tables repeatedly, without grace period; to be killed: `python -m tests.faults.hot_dropper
URL`.

It prints the rolls that it dropped.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta

from lakelog.storage.postgres import open_cells
from tests.kit.process import Process, Supervisor


def start(supervisor: Supervisor, url: str, points: str = "") -> Process:
    argv = [sys.executable, "-m", "tests.faults.hot_dropper", url]
    return supervisor.start(argv, env={"LAKELOG_FAILPOINTS": points}, name="hot-dropper")


async def main(url: str) -> None:
    store = (await open_cells(url))[0]
    while True:
        await store.roll()
        dropped = await store.rolls_drop(grace=timedelta(0))
        print("dropped", *dropped, flush=True)
        await asyncio.sleep(0.5)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
