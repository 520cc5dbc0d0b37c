"""The sizes of runs: requirements, load and topology."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, kw_only=True)
class RunSize:
    """The size of a run. Messages, faults and seeds are minimums; `minutes` is the total time."""

    name: str
    messages: int
    faults: int
    kinds: int
    """Minimum number of kinds of faults."""
    seeds: int
    minutes: float
    load_seconds: float
    rate: float
    """Maximum messages per second of all producers together."""
    producers: int = 4
    workers: int = 4
    """The number of workers of each lease group."""
    members: int = 3
    churners: int = 8
    """The number of members that join and leave during the fault of membership churn."""
    partitions: int = 4
    batch: int = 200
    max_messages: int = 40
    """The number of messages per consume on the main topic."""
    lease_ms: int = 12_000
    """The lease of consumes on the main topic, in seconds. It is longer than most faults, because messages of lost
    owners are delivered one at a time.
    """
    drivers: int = 2
    """The number of tiering drivers. The election lets one of them work, and another continues if it is killed."""
    tier_every: float = 5.0
    """Seconds between two passes of a driver."""
    tier_age: float = 6.0
    """Seconds until a message is cold. A group with more lag reads it from its file."""
    is_hard: bool = False
    """True for long runs, which have the hardest faults, and clients that redrive dead letters and recreate topics."""
    drain_seconds: float = 60.0
    most_lag: int = 8_000
    """Lag at which producers slow down; at twice that, they wait. A message that a group cannot handle in time
    proves nothing.
    """
    pythons: tuple[str, ...] = ()
    """Other Python versions to run the tests with afterwards."""

    @property
    def scheduled(self) -> int:
        """Return the number of faults to begin. Some have no effect, and do not count."""
        return self.faults + max(2, self.faults // 3)


_MUCH: dict[str, Any] = {
    # The cost of a call limits a run on a small machine.
    "batch": 300,
    "max_messages": 80,
    "lease_ms": 20_000,
    # A group that has to read cold messages needs more of the machine, and falls further behind.
    "tier_every": 15.0,
    "tier_age": 30.0,
    "most_lag": 6_000,
}

SIZES = {
    "ci": RunSize(
        name="ci",
        messages=300_000,
        faults=40,
        kinds=12,
        seeds=20_000,
        minutes=8,
        load_seconds=120,
        rate=1_500,
        drivers=1,
        **_MUCH,
    ),
    "mutant": RunSize(
        name="mutant",
        messages=4_000,
        faults=6,
        kinds=4,
        seeds=0,
        minutes=3,
        load_seconds=90,
        rate=600,
        producers=2,
        workers=2,
        churners=4,
        batch=50,
    ),
    "nightly": RunSize(
        name="nightly",
        messages=20_000_000,
        faults=1_000,
        kinds=20,
        seeds=500_000,
        minutes=480,
        load_seconds=5 * 3600,
        rate=1_500,
        members=8,
        churners=64,
        is_hard=True,
        pythons=("3.12", "3.13"),
        **_MUCH,
    ),
    "release": RunSize(
        name="release",
        messages=100_000_000,
        faults=10_000,
        kinds=20,
        seeds=5_000_000,
        minutes=72 * 60,
        load_seconds=50 * 3600,
        rate=1_000,
        members=8,
        churners=64,
        is_hard=True,
        pythons=("3.12", "3.13"),
        **_MUCH,
    ),
}


def cut_to(size: RunSize, minutes: float) -> RunSize:
    """Return the same run in less time, with proportionally fewer messages, faults and seeds."""
    share = minutes / size.minutes
    if share >= 1:
        return size
    faults = max(1, round(size.faults * share))
    load_seconds = max(10.0, size.load_seconds * share)
    return replace(
        size,
        messages=max(1_000, round(size.messages * share)),
        faults=faults,
        kinds=min(size.kinds, max(1, faults // 3)),
        seeds=max(100, round(size.seeds * share)),
        minutes=minutes,
        load_seconds=load_seconds,
        # A run of seconds ends before any message is cold.
        drivers=size.drivers if load_seconds > 30 else 0,
    )
