"""Knowledge of a cell about failovers: its durability, and where the logs ended when each timeline began."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Durability:
    """Durability of PostgreSQL. `weak` lists the settings under which an acknowledged commit could be lost."""

    weak: Sequence[str]
    synchronous_standby: bool
    timeline: int


class TimelineStore(Protocol):
    """The timelines of one cell. A timeline begins when a promoted standby replaces the data."""

    async def ends_after(self, asks: Sequence[tuple[int, int]]) -> list[int | None]:
        """Return for each (pid, timeline) the lowest end of the log at which a later timeline began.

        Offsets from there on were lost, and may have been assigned again. The result is None if no timeline is later,
        and 0 for a partition that a later timeline did not have.
        """
        ...

    async def await_standby(self) -> None:
        """Wait until the synchronous standby, if there is one, has everything that is visible now.

        A write is visible before the standby has it if its wait was cancelled, or if PostgreSQL restarted.
        """
        ...
