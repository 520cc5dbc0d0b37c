"""`scripts/prove scale`: measure what a large installation costs, and compare it with the limits."""

from __future__ import annotations

import asyncio
from argparse import ArgumentParser, Namespace

from prove.commands import ProveCommand, say
from prove.scale.keys import run_keys
from prove.scale.rolls import run_rolls
from tests.kit.postgres import Cluster

DEFAULTS = {"max_connections": "100", "max_locks_per_transaction": "64", "shared_buffers": "128MB"}
"""The settings with which PostgreSQL is delivered, where clusters for tests have others."""


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--size", choices=("ci", "full"), default="full", help="default: full")
    parser.add_argument("--only", choices=("keys", "rolls"), help="one of the two scenarios; default: both")


def _run(arguments: Namespace) -> int:
    with Cluster(settings=DEFAULTS) as cluster:
        return asyncio.run(_measure(cluster, is_full=arguments.size == "full", only=arguments.only))


async def _measure(cluster: Cluster, *, is_full: bool, only: str | None) -> int:
    problems: list[str] = []
    if only != "rolls":
        keys = await run_keys(
            cluster.create_database(),
            per_second=100 if is_full else 1,
            full_per_second=1000 if is_full else 10,
        )
        _report("keys", keys.lines(), keys.problems())
        problems += keys.problems()
    if only != "keys":
        rolls = await run_rolls(cluster.create_database(), topics=10 if is_full else 1)
        _report("rolls", rolls.lines(), rolls.problems())
        problems += rolls.problems()
    return 1 if problems else 0


def _report(name: str, lines: list[str], problems: list[str]) -> None:
    for line in lines:
        say(f"{name}: {line}")
    say(f"{name}: " + ("; ".join(problems) if problems else "within the limits"))


COMMAND = ProveCommand(
    name="scale",
    about="A day of idempotency keys, and rolls of 100,000 partitions, on PostgreSQL with its default settings.",
    arguments=_arguments,
    run=_run,
)
