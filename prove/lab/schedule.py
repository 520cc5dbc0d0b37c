"""The schedule of faults, drawn from the seed.

A quarter of the time is quiet, in intervals long enough for progress.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

DRILL = "server killed"
DRILL_SECONDS = 33.0
"""The duration of the drill for L3 at the start of a long run: one server is killed every 10 s, without other
faults.
"""
DRILLED_FROM = 150.0
CYCLE_SECONDS = 128.0
"""The period of the schedule: three quarters with faults, then 32 s without."""
BUSY = 0.75
FIRST_SECONDS = 3.0
LAST_SECONDS = 8.0
"""The time before a quiet interval in which no fault begins, so that none lasts into it."""


@dataclass(frozen=True, kw_only=True)
class ScheduledFault:
    """A planned fault; `seed` seeds its own random choices."""

    at: float
    kind: str
    seed: int
    target: str = ""
    """The affected server or cell; empty for a random one."""


def schedule(seed: int, kinds: Sequence[str], *, faults: int, seconds: float) -> list[ScheduledFault]:
    """Return a schedule that repeats all kinds of faults, each time in another order."""
    chance = random.Random(seed)
    chosen: list[str] = []
    while len(chosen) < faults:
        chosen += chance.sample(list(kinds), len(kinds))
    drilled = drill_seconds(kinds, seconds)
    times = [2.0 + 10.0 * number for number in range(3)] if drilled else []
    chosen = [DRILL] * len(times) + chosen[: faults - len(times)]
    times += [drilled + at for at in _times(chance, faults - len(times), seconds - drilled)]
    return [
        ScheduledFault(at=at, kind=kind, seed=chance.randrange(1 << 30)) for at, kind in zip(times, chosen, strict=True)
    ]


def in_turn(
    seed: int, acts: Sequence[tuple[str, ...]], *, last: Sequence[tuple[str, ...]] = (), seconds: float
) -> list[ScheduledFault]:
    """Return a schedule of groups of faults, in an order drawn from the seed. The faults of a group begin together."""
    chance = random.Random(seed)
    ordered = [*chance.sample(list(acts), len(acts)), *last]
    each = BUSY * seconds / (len(ordered) + 1)
    return [
        ScheduledFault(at=each * number, kind=kind, seed=chance.randrange(1 << 30))
        for number, act in enumerate(ordered, 1)
        for kind in act
    ]


def drill_seconds(kinds: Sequence[str], seconds: float) -> float:
    """Return for how long only servers are killed; 0 if the run is too short."""
    return DRILL_SECONDS if DRILL in kinds and seconds >= DRILLED_FROM else 0.0


def quiet(seconds: float) -> list[tuple[float, float]]:
    """Return start and end of the intervals without faults."""
    found, begin = [], 0.0
    while begin < seconds:
        length = min(CYCLE_SECONDS, seconds - begin)
        found.append((begin + BUSY * length, begin + length))
        begin += length
    return found


def _times(chance: random.Random, faults: int, seconds: float) -> list[float]:
    """Return times spread over the intervals that are not quiet, with a small random offset."""
    busy, begin = [], 0.0
    for start, end in quiet(seconds):
        last = max(begin + 1.0, start - LAST_SECONDS)
        busy.append((min(begin + FIRST_SECONDS, last), last))
        begin = end
    total = sum(end - start for start, end in busy)
    times = []
    for number in range(faults):
        place = (number + chance.random()) / faults * total
        for start, end in busy:
            if place <= end - start:
                times.append(start + place)
                break
            place -= end - start
        else:
            times.append(busy[-1][1])
    return sorted(times)
