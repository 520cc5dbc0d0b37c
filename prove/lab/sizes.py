"""What each run asks for, and the shape of its topology."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, kw_only=True)
class RunSize:
    """One run. Messages, faults and seeds are the least that counts; `minutes` is for all of it together."""

    name: str
    messages: int
    faults: int
    kinds: int
    """Of so many kinds at least."""
    seeds: int
    minutes: float
    load_seconds: float
    rate: float
    """Messages published a second at most, all producers together."""
    producers: int = 4
    workers: int = 4
    """Of each lease group."""
    members: int = 3
    churners: int = 8
    """Members that come and go every 200 ms while that fault lasts."""
    partitions: int = 4
    batch: int = 200
    max_messages: int = 40
    """Of a worker's call on the main topic."""
    lease_ms: int = 12_000
    """Of those calls: longer than most faults last, or what their owners have is run message by message."""
    drivers: int = 2
    """Of tiering. The election lets one of them work, and if it is killed the other goes on."""
    tier_every: float = 5.0
    """Seconds between two passes of a driver."""
    tier_age: float = 6.0
    """Seconds until a message is cold: a group that is further behind reads it from its file."""
    is_hard: bool = False
    """With the hardest faults, and with those who redrive dead letters and make topics anew: a long run."""
    drain_seconds: float = 60.0
    most_lag: int = 8_000
    """Producers slow down while a group is further behind, and wait while it is twice as far: what it cannot do in time
    proves nothing."""
    pythons: tuple[str, ...] = ()
    """Other versions of Python with which the tests run afterwards."""

    @property
    def scheduled(self) -> int:
        """Faults that are begun: some show no effect, and do not count."""
        return self.faults + max(2, self.faults // 3)


_MUCH: dict[str, Any] = {
    # What a call costs is what limits a run on a small machine.
    "batch": 300,
    "max_messages": 80,
    "lease_ms": 20_000,
    # A group that comes to what is cold already needs more of the machine, and falls behind further.
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
    """The same run in less time: fewer messages, faults and seeds, in proportion."""
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
        # A run of seconds is over before there is anything to tier.
        drivers=size.drivers if load_seconds > 30 else 0,
    )
