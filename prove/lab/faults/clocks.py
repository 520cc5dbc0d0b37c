"""Faults of clocks: server clocks are ahead or behind. Leases must not be affected, because the database clock decides.

Servers run under libfaketime, which reads the offset from a file once a second. Only the wall clock is wrong: the
monotonic clock of a machine is never set. A Python process under libfaketime must not call `time.sleep`, which fails; a
server never calls it.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import TYPE_CHECKING

from prove.lab.claims import Busy
from prove.lab.faults.fault import BaseFault, Evidence

if TYPE_CHECKING:
    from prove.lab.topology import Topology

PLACED = "LAKELOG_FAKETIME"
"""The environment variable with the path of the library, if it is not where Debian installs it."""


def library() -> Path | None:
    """Return the path of libfaketime, or None if it is not installed."""
    if PLACED in os.environ:
        return Path(os.environ[PLACED])
    return next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)


def faked(clock: Path) -> dict[str, str]:
    """Return the environment of a process whose clock that file sets; empty if libfaketime is not installed."""
    found = library()
    if found is None:
        return {}
    set_clock(clock, 0)
    return {
        "LD_PRELOAD": str(found),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        # Otherwise threads that wait for the interpreter lock with a timeout spin and take a processor each.
        "FAKETIME_FORCE_MONOTONIC_FIX": "0",
        "NO_FAKE_STAT": "1",
    }


def set_clock(clock: Path, seconds: float) -> None:
    """Set the clock atomically, because a partly written file would set another time."""
    beside = clock.with_suffix(".new")
    beside.parent.mkdir(parents=True, exist_ok=True)
    beside.write_text(f"{seconds:+.3f}\n")
    beside.replace(clock)


class ClockAhead(BaseFault):
    """All server clocks are ahead by more than any lease, each by a different amount, so every server is wrong."""

    kind = "servers' clocks ahead"
    # It must have no effect, and therefore never counts.
    counts_by = Evidence.by()
    sign = 1

    def begin(self, topology: Topology, chance: random.Random) -> None:
        if library() is None:
            raise Busy("libfaketime is not installed")
        self.seconds = chance.uniform(3.0, 6.0)
        self.claim(topology, ["clocks"])
        wrong = [self.sign * chance.uniform(15.0, 60.0) for _ in topology.servers]
        self.about = ", ".join(f"{seconds:+.0f} s" for seconds in wrong)
        for server, seconds in zip(topology.servers, wrong, strict=True):
            set_clock(server.clock, seconds)

    def end(self, topology: Topology) -> None:
        for server in topology.servers:
            set_clock(server.clock, 0)
        self.release(topology)


class ClockBehind(ClockAhead):
    kind = "servers' clocks behind"
    sign = -1
