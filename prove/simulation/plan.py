"""What a seed means: how large the installation is, what is done, and what goes wrong when."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from lakelog.model.group import Exponential, Fixed, Order, RetryPolicy
from prove.checker.basis import DATABASE_CLOCK_JUMPS

LEASE_GROUP = "billing"
CURSOR_GROUP = "audit"

FAULTS: Mapping[str, int] = {
    "server crash": 5,
    "server freeze": 2,
    "all servers crash": 1,
    "worker crash": 4,
    "member crash": 2,
    "producer crash": 1,
    "clock of a server jumps": 2,
    "clock of a server drifts": 2,
    DATABASE_CLOCK_JUMPS: 1,
    "network": 5,
    "store: lost after": 4,
    "store: lost before": 2,
    "store: refused": 2,
    "store: slow": 2,
}
"""Kinds, and how often each is drawn."""


@dataclass(frozen=True, kw_only=True)
class PlannedFault:
    """One thing that goes wrong. What it hits is drawn when it comes."""

    at: float
    kind: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All that is drawn before the run begins."""

    seed: int
    is_shuffled: bool
    """What is ready at the same moment runs in a drawn order, not in order of arrival."""
    cells: int
    servers: int
    topics: Mapping[str, int]
    """Partitions by name."""
    order: Order
    retries: RetryPolicy
    lease_ms: int
    producers: int
    publishes: int
    """Calls of each producer."""
    workers: int
    members: int
    looks: int
    seeks: int
    redrives: int
    agents: bool
    max_count: int | None
    """What retention keeps of a partition of the first topic."""
    seconds: float
    faults: tuple[PlannedFault, ...] = field(default=())


def drawn(seed: int) -> Plan:
    chance = random.Random(seed)
    seconds = chance.choice((1.0, 1.5, 2.0, 4.0))
    names = ("orders", "events")[: chance.choice((1, 1, 1, 1, 1, 2))]
    retries: RetryPolicy = Fixed(max=chance.choice((0, 1, 2, 3)), seconds=chance.choice((0.0, 0.2, 0.7)))
    if chance.random() < 0.5:
        retries = Exponential(max=chance.choice((1, 2, 3)), base_seconds=0.2, max_seconds=1.0)
    retained = chance.choice((4, 8)) if chance.random() < 0.1 else None
    return Plan(
        seed=seed,
        is_shuffled=chance.random() < 0.5,
        cells=chance.choice((1, 1, 2)),
        servers=chance.choice((2, 2, 2, 3)),
        topics={name: chance.choice((1, 1, 1, 2, 3)) for name in names},
        order=chance.choice((Order.KEY, Order.KEY, Order.KEY, Order.PARTITION, Order.NONE)),
        retries=retries,
        lease_ms=chance.choice((400, 1000, 2500)),
        producers=chance.choice((1, 1, 2, 2, 3)),
        publishes=chance.choice((1, 2, 2, 3, 4, 8)),
        workers=chance.choice((2, 2, 2, 2, 3, 4)),
        members=chance.choice((0, 0, 0, 0, 2, 3)),
        looks=int(chance.random() < 0.4),
        seeks=int(chance.random() < 0.15),
        redrives=int(chance.random() < 0.4),
        agents=retained is not None or chance.random() < 0.2,
        max_count=retained,
        seconds=seconds,
        faults=_faults(chance, seconds),
    )


def _faults(chance: random.Random, seconds: float) -> tuple[PlannedFault, ...]:
    kinds = chance.choices(list(FAULTS), weights=list(FAULTS.values()), k=chance.randint(3, 10))
    faults = (PlannedFault(at=seconds * chance.random(), kind=kind, seconds=2 * chance.random()) for kind in kinds)
    return tuple(sorted(faults, key=lambda each: each.at))
