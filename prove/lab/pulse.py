"""When the machine itself was taken away: a hypervisor that gives its processors to others stops everything on it.

That is no fault of anybody here, and looks like one. Where it happens is written down with the faults: for what has to
happen within a time, the clock stands still there.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import TracebackType

from prove.checker.basis import Fault

TAKEN = "machine taken away"
SHARE = 0.15
"""Of the processors' time, from which on a moment counts."""
EVERY_SECONDS = 0.5
_STAT = Path("/proc/stat")
_STOLEN = 7
"""Its place in the first line of that file."""


class Pulse:
    """`with Pulse() as pulse:` watches in a thread of its own."""

    def __init__(self, stat: Path = _STAT) -> None:
        self._stat = stat
        self._taken: list[tuple[int, int]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="pulse", daemon=True)

    def __enter__(self) -> Pulse:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    @property
    def stretches(self) -> list[tuple[int, int]]:
        """From and to, in order."""
        return [*self._taken]

    @property
    def faults(self) -> list[Fault]:
        return [Fault(kind=TAKEN, began_ns=began, ended_ns=ended) for began, ended in self.stretches]

    def seconds(self, since_ns: int = 0) -> float:
        """For how long, all in all, from that time on."""
        return sum(max(0, ended - max(began, since_ns)) for began, ended in [*self._taken]) / 1e9

    def look(self, before: list[int], began_ns: int, ended_ns: int) -> list[int]:
        """Notes the stretch if it counts; the counters as they are now."""
        now = self._counters()
        passed = [later - earlier for earlier, later in zip(before, now, strict=False)]
        whole = sum(passed)
        if len(passed) > _STOLEN and whole and passed[_STOLEN] >= SHARE * whole:
            if self._taken and self._taken[-1][1] == began_ns:
                began_ns = self._taken.pop()[0]
            self._taken.append((began_ns, ended_ns))
        return now

    def _watch(self) -> None:
        counters, at = self._counters(), time.monotonic_ns()
        while counters and not self._over.wait(EVERY_SECONDS):
            now = time.monotonic_ns()
            counters, at = self.look(counters, at, now), now

    def _counters(self) -> list[int]:
        """Of all processors, in ticks. Those after the stolen ones are parts of others. None where nobody counts."""
        try:
            return [int(each) for each in self._stat.read_text().split("\n", 1)[0].split()[1 : _STOLEN + 2]]
        except OSError:
            return []
