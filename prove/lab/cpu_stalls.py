"""Detects stalls of the machine, in which a hypervisor takes the processors away.

A stall looks like a fault, but no part of Lakelog caused it. It is recorded with the faults, and time limits do not
count it.

A machine that shares its cores with others can also be slow without being stopped, which no counter shows. The monitor
therefore repeats a small computation, and the report shows its processor time. A slow processor does not extend any
time limit.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from statistics import median
from types import TracebackType

from prove.checker.invariant import FaultInterval

STALLED = "machine stalled"
SHARE = 0.15
"""The share of stolen processor time from which an interval counts as a stall."""
EVERY_SECONDS = 0.5
MINUTE_NS = 60 * 10**9
_STAT = Path("/proc/stat")
_STOLEN = 7
"""The index of the stolen time in the first line of /proc/stat."""
_WORK = range(50_000)
"""The number of rounds of the computation, which take about a millisecond."""


class StallMonitor:
    """Watches for stalls in a thread: `with StallMonitor() as stalls:`."""

    def __init__(self, stat: Path = _STAT) -> None:
        self._stat = stat
        self._taken: list[tuple[int, int]] = []
        self._worked: list[tuple[int, int]] = []
        self.is_taken = False
        """True if the machine stalled in the last interval."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="stalls", daemon=True)

    def __enter__(self) -> StallMonitor:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    @property
    def intervals(self) -> list[tuple[int, int]]:
        """Return start and end of each stall, in order."""
        return [*self._taken]

    @property
    def faults(self) -> list[FaultInterval]:
        return [FaultInterval(kind=STALLED, began_ns=began, ended_ns=ended) for began, ended in self.intervals]

    def seconds(self, since_ns: int = 0, until_ns: int = sys.maxsize) -> float:
        """Return the total seconds of stalls in that time."""
        return sum(max(0, min(ended, until_ns) - max(began, since_ns)) for began, ended in [*self._taken]) / 1e9

    def speed(self, since_ns: int = 0, until_ns: int | None = None) -> float | None:
        """Return the processor speed in that time as a share of the best speed observed; None if unknown."""
        worked = [*self._worked]
        chosen = [took for at, took in worked if at >= since_ns and (until_ns is None or at < until_ns)]
        if not chosen:
            return None
        return min(1.0, _best(worked) / median(chosen))

    def speed_by_minute(self, since_ns: int, until_ns: int) -> list[float]:
        """Return the speed of each minute; 0 for a minute without measurements."""
        worked = [*self._worked]
        minutes: list[list[int]] = [[] for _ in range(since_ns, until_ns, MINUTE_NS)]
        for at, took in worked:
            if since_ns <= at < until_ns:
                minutes[(at - since_ns) // MINUTE_NS].append(took)
        best = _best(worked) if worked else 0
        return [round(min(1.0, best / median(each)), 2) if each else 0.0 for each in minutes]

    def work(self) -> None:
        began = time.thread_time_ns()
        sum(_WORK)
        self._worked.append((time.monotonic_ns(), time.thread_time_ns() - began))

    def look(self, before: list[int], began_ns: int, ended_ns: int) -> list[int]:
        """Record the interval if it counts as a stall, and return the current counters."""
        now = self._counters()
        passed = [later - earlier for earlier, later in zip(before, now, strict=False)]
        whole = sum(passed)
        self.is_taken = len(passed) > _STOLEN and whole > 0 and passed[_STOLEN] >= SHARE * whole
        if self.is_taken:
            if self._taken and self._taken[-1][1] == began_ns:
                began_ns = self._taken.pop()[0]
            self._taken.append((began_ns, ended_ns))
        return now

    def _watch(self) -> None:
        counters, at = self._counters(), time.monotonic_ns()
        while counters and not self._over.wait(EVERY_SECONDS):
            self.work()
            now = time.monotonic_ns()
            counters, at = self.look(counters, at, now), now

    def _counters(self) -> list[int]:
        """Return the counters of all processors in ticks, up to the stolen time.

        Later counters are contained in earlier ones.

        An empty list means that counters are missing.
        """
        try:
            return [int(each) for each in self._stat.read_text().split("\n", 1)[0].split()[1 : _STOLEN + 2]]
        except OSError:
            return []


def _best(worked: list[tuple[int, int]]) -> int:
    """Return the time that one measurement in twenty reaches. The minimum may be an outlier."""
    return sorted(took for _, took in worked)[len(worked) // 20]
