"""`scripts/prove make DIR --events N`: generates the history of a valid run, to measure `check` with."""

from __future__ import annotations

import os
import time
from argparse import ArgumentParser, Namespace
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from prove.commands import ProveCommand
from prove.history.loading import HISTORY
from prove.history.synthetic import ROWS_OF_A_MESSAGE, describe, make_partition


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="folder to write; must be missing or empty")
    parser.add_argument(
        "--events", type=int, default=2_000_000, help="approximate rows of the tables (default: 2000000)"
    )
    parser.add_argument("--partitions", type=int, default=8)


def run(arguments: Namespace) -> int:
    folder: Path = arguments.folder
    (folder / HISTORY).mkdir(parents=True)
    began = time.perf_counter()
    messages = arguments.events // ROWS_OF_A_MESSAGE // arguments.partitions
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        numbers = range(arguments.partitions)
        done = [pool.submit(make_partition, folder, number, messages) for number in numbers]
        found = [each.result() for each in done]
    describe(folder, [name for names, _ in found for name in names], max(drained_ns for _, drained_ns in found))
    print(f"{folder}: {messages * arguments.partitions:,} messages in {time.perf_counter() - began:.1f} s")
    return 0


COMMAND = ProveCommand(
    name="make",
    about="Generate a large valid history to measure how long `check` takes.",
    arguments=arguments,
    run=run,
)
