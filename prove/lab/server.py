"""`lakelog serve` with agents that run every few seconds instead of every few minutes: `python -m prove.lab.server`.

Otherwise the agents would do nothing in a run of a few minutes. Nothing else differs from the command.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from lakelog.cli import main
from lakelog.engine.lake import pipelines
from lakelog.maintenance.roller import Roller
from lakelog.maintenance.trimmer import Trimmer
from lakelog.storage.postgres.partitions import PostgresStore


def shorten_intervals() -> None:
    """Change the default intervals of the agents. The server creates them with their defaults."""
    os.environ.setdefault("LAKELOG_RETENTION_SECONDS", "3")
    _defaults(Roller, every_seconds=4.0, max_age=timedelta(seconds=8), max_bytes=8 << 20)
    _defaults(Trimmer, every_seconds=5.0)
    # A killed driver must not block its replacement for longer than that takes to start.
    setattr(pipelines, "ALIVE_SECONDS", 8.0)  # noqa: B010
    # Time until hot tables are dropped after their messages are in verified segments: a minute is most of a run.
    for verb in (PostgresStore.rolls_drop, PostgresStore.rolls_compact):
        verb.__kwdefaults__["grace"] = timedelta(seconds=5)  # type: ignore[index]


def _defaults(agent: type, **chosen: object) -> None:
    known: dict[str, Any] = agent.__init__.__kwdefaults__  # type: ignore[misc]
    if unknown := chosen.keys() - known.keys():
        raise TypeError(f"{agent.__name__} has no {', '.join(unknown)}")
    known.update(chosen)


if __name__ == "__main__":
    shorten_intervals()
    main()
