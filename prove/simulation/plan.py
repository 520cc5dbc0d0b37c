"""The meaning of a seed: the size of the installation, the load, and the faults with their times."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from lakelog.model.group import Exponential, Fixed, Order, RetryPolicy
from prove.checker.invariant import DATABASE_CLOCK_JUMPS

LEASE_GROUP = "billing"
CURSOR_GROUP = "audit"
CANARY = "rival"
"""A word in a neighbour's names and paths that no text of the run's own project has."""

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
"""The kinds of faults, and how often each is drawn."""
DAMAGED = "segment damaged"
"""The fault in which one partition cannot be read, until some seconds after all other faults are healed."""
SLOW_NEIGHBOUR = "neighbour: object store slow"
NEIGHBOURS = ("neighbour: segment damaged", "neighbour: unknown journal event", SLOW_NEIGHBOUR)
"""The kinds of faults of another project on the same servers, which last until the run ends."""
PROMOTED = "standby promoted"
"""The fault in which a standby without the last writes of a cell replaces it."""
PROMOTED_SHARE = 0.05
"""The share of seeds with a failover."""
LOST_THEN_LATE = "store: commit lost, journal late"
"""The fault that loses the response to a written commit of leases. The journal is read only after the end of the
lease.
"""


@dataclass(frozen=True, kw_only=True)
class PlannedFault:
    """One planned fault. Its target is drawn when it begins."""

    at: float
    kind: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class SimulationPlan:
    """All random choices that are made before the run begins."""

    seed: int
    is_shuffled: bool
    """True if callbacks that are ready at the same time run in random order instead of order of arrival."""
    cells: int
    servers: int
    topics: Mapping[str, int]
    """The number of partitions of each topic, by name."""
    order: Order
    retries: RetryPolicy
    lease_ms: int
    producers: int
    publishes: int
    """The number of calls of each producer."""
    workers: int
    members: int
    looks: int
    seeks: int
    redrives: int
    agents: bool
    max_count: int | None
    """The number of messages that retention keeps in a partition of the first topic."""
    seconds: float
    forgets: float = 0.0
    """The share of consumes that a worker repeats as if the response had been lost."""
    repeats_late: bool = False
    """True if workers repeat accepted answers up to minutes later."""
    remembered_bytes: int | None = None
    """The memory for closed leases in a partition, if less than usual."""
    shard_seconds: float = 0.0
    """The time after which shards move to other servers, if the servers share topics by shards; else 0."""
    neighbour: bool = False
    """True if there is another project on the same servers."""
    faults: tuple[PlannedFault, ...] = field(default=())


def drawn(seed: int) -> SimulationPlan:
    plan = _with_more(_drawn_first(seed), random.Random(f"more {seed}"))
    chance = random.Random(f"shards {seed}")
    has_shards = not plan.neighbour and chance.random() < 0.15
    plan = replace(plan, shard_seconds=chance.choice((0.7, 1000.0)) if has_shards else 0.0)
    chance = random.Random(f"promotion {seed}")
    return _with_promotion(plan, chance) if chance.random() < PROMOTED_SHARE else plan


def _with_promotion(plan: SimulationPlan, chance: random.Random) -> SimulationPlan:
    """Return the plan with a failover that loses writes.

    The history of the lost time is not judged, so the plan has nothing that needs it: seeks, redrives, members and late
    repeats.
    """
    faults = [each for each in plan.faults if each.kind not in (DAMAGED, DATABASE_CLOCK_JUMPS, *NEIGHBOURS)][:4]
    at = plan.seconds * (0.2 + 0.6 * chance.random())
    faults.append(PlannedFault(at=at, kind=PROMOTED, seconds=0.02 + 0.7 * chance.random() ** 2))
    return replace(
        plan,
        cells=1,
        publishes=max(4, plan.publishes),
        members=0,
        looks=0,
        seeks=0,
        redrives=0,
        max_count=None,
        forgets=0.0,
        repeats_late=False,
        remembered_bytes=None,
        neighbour=False,
        shard_seconds=0.0,
        faults=tuple(sorted(faults, key=lambda each: each.at)),
    )


def _drawn_first(seed: int) -> SimulationPlan:
    chance = random.Random(seed)
    seconds = chance.choice((1.0, 1.5, 2.0, 4.0))
    names = ("orders", "events")[: chance.choice((1, 1, 1, 1, 1, 2))]
    retries: RetryPolicy = Fixed(max=chance.choice((0, 1, 2, 3)), seconds=chance.choice((0.0, 0.2, 0.7)))
    if chance.random() < 0.5:
        retries = Exponential(max=chance.choice((1, 2, 3)), base_seconds=0.2, max_seconds=1.0)
    retained = chance.choice((4, 8)) if chance.random() < 0.1 else None
    return SimulationPlan(
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


def _with_more(plan: SimulationPlan, chance: random.Random) -> SimulationPlan:
    """Draw the choices of later extensions separately, so that the older choices of a seed stay the same."""
    faults = list(plan.faults)
    neighbour = chance.choice(NEIGHBOURS) if chance.random() < 0.035 else None
    damages = neighbour is None and chance.random() < 0.1 and max(plan.topics.values()) > 1
    # Delays by these faults show best if few other faults occur.
    if damages:
        faults = faults[:2]
    if neighbour:
        faults = [PlannedFault(at=0.3 * plan.seconds * chance.random(), kind=neighbour, seconds=0.0)]
        if neighbour != SLOW_NEIGHBOUR:
            # More groups share slow commits.
            faults.append(PlannedFault(at=0.0, kind="store: slow", seconds=plan.seconds))
    if damages:
        faults.append(PlannedFault(at=plan.seconds * chance.random(), kind=DAMAGED, seconds=0.0))
    if not neighbour and chance.random() < 0.3:
        faults.append(PlannedFault(at=plan.seconds * chance.random(), kind=LOST_THEN_LATE, seconds=2.0))
    forgets = chance.choice((0.0, 0.0, 0.0, 0.5))
    repeats_late = chance.random() < 0.03
    return replace(
        plan,
        forgets=forgets,
        repeats_late=repeats_late,
        remembered_bytes=chance.choice((50, 300, 64 * 1024)) if repeats_late else None,
        neighbour=neighbour is not None,
        faults=tuple(sorted(faults, key=lambda each: each.at)),
    )


def _faults(chance: random.Random, seconds: float) -> tuple[PlannedFault, ...]:
    kinds = chance.choices(list(FAULTS), weights=list(FAULTS.values()), k=chance.randint(3, 10))
    faults = (PlannedFault(at=seconds * chance.random(), kind=kind, seconds=2 * chance.random()) for kind in kinds)
    return tuple(sorted(faults, key=lambda each: each.at))
