"""When the machine itself was taken away: a hypervisor that gives its processors to others stops everything on it.

That is no fault of anybody here, and looks like one. Where it happens is written down with the faults: for what has to
happen within a time, the clock stands still there.

Who shares a core with others is slowed down without being stopped, which no counter shows. So a little work is done
again and again, and what it took of the processor's own time is told beside the figures of a run. It excuses nothing.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from statistics import median
from types import TracebackType

from prove.checker.invariant import FaultInterval

STALLED = "machine taken away"
SHARE = 0.15
"""Of the processors' time, from which on a moment counts."""
EVERY_SECONDS = 0.5
MINUTE_NS = 60 * 10**9
_STAT = Path("/proc/stat")
_STOLEN = 7
"""Its place in the first line of that file."""
_WORK = range(50_000)
"""About a millisecond."""


class StallMonitor:
    """`with Pulse() as stalls:` watches in a thread of its own."""

    def __init__(self, stat: Path = _STAT) -> None:
        self._stat = stat
        self._taken: list[tuple[int, int]] = []
        self._worked: list[tuple[int, int]] = []
        self.is_taken = False
        """At the last look."""
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
        """From and to, in order."""
        return [*self._taken]

    @property
    def faults(self) -> list[FaultInterval]:
        return [FaultInterval(kind=STALLED, began_ns=began, ended_ns=ended) for began, ended in self.intervals]

    def seconds(self, since_ns: int = 0, until_ns: int = sys.maxsize) -> float:
        """For how long, all in all, in that time."""
        return sum(max(0, min(ended, until_ns) - max(began, since_ns)) for began, ended in [*self._taken]) / 1e9

    def speed(self, since_ns: int = 0, until_ns: int | None = None) -> float | None:
        """Of the processors in that time, as a share of the best they had while this watched; None: not known."""
        worked = [*self._worked]
        chosen = [took for at, took in worked if at >= since_ns and (until_ns is None or at < until_ns)]
        if not chosen:
            return None
        return min(1.0, _best(worked) / median(chosen))

    def speed_by_minute(self, since_ns: int, until_ns: int) -> list[float]:
        """The same for each minute; 0 for one in which nothing was measured."""
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
        """Notes the stretch if it counts; the counters as they are now."""
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
        """Of all processors, in ticks. Those after the stolen ones are parts of others. None where nobody counts."""
        try:
            return [int(each) for each in self._stat.read_text().split("\n", 1)[0].split()[1 : _STOLEN + 2]]
        except OSError:
            return []


def _best(worked: list[tuple[int, int]]) -> int:
    """The least is luck: a twentieth was at least that quick."""
    return sorted(took for _, took in worked)[len(worked) // 20]
