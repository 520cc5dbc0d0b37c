"""What a fault is: it begins, lasts for its seconds, and ends; and the history must show that it did something.

A new kind is a class in one of the files beside this one, and a line in the table `KINDS`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    from prove.lab.topology import Topology


class Symptom(Enum):
    """What in a history shows a fault."""

    UNKNOWN = "a call of unknown outcome"
    REFUSED = "a call that was refused"
    REDELIVERED = "a message delivered again that nobody gave back"
    RESTARTED = "a driver of tiering in the place of a killed one"
    TIERED_AGAIN = "a pass of tiering that failed, or found segments begun, taken or damaged"


PUBLISHING = frozenset({"producer", "numbered", "jobber", "shortener"})
WORKING = frozenset({"billing", "mailing", "jobs", "lagging"})
SHORTLY = frozenset({"jobs", "lagging"})
"""Workers with leases of a few seconds."""
READING = frozenset({"tail", "replay", "sampler"})
MEMBERS = frozenset({"indexing", "churn"})
TIERING = frozenset({"driver"})
ALL = PUBLISHING | WORKING | READING | MEMBERS


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """By which signs, of which clients, and how long after its end at the latest."""

    signs: frozenset[Symptom]
    roles: frozenset[str] = ALL
    after_seconds: float = 3.0

    @classmethod
    def by(cls, *signs: Symptom, roles: frozenset[str] = ALL, after: float = 3.0) -> Evidence:
        return cls(signs=frozenset(signs), roles=roles, after_seconds=after)


class Fault(Protocol):
    """One fault of a run. `about` and `victims` are known once it has begun."""

    kind: ClassVar[str]
    counts_by: ClassVar[Evidence]
    seconds: float
    """How long it lasts; the run may end it early."""
    about: str
    victims: frozenset[str]
    """Processes; if there are any, only they can show it."""

    def begin(self, topology: Topology, chance: random.Random) -> None: ...

    def end(self, topology: Topology) -> None: ...


class BaseFault:
    """What faults share: what they have claimed is freed when they end."""

    kind: ClassVar[str] = ""
    counts_by: ClassVar[Evidence] = Evidence.by(Symptom.UNKNOWN)
    is_hard: ClassVar[bool] = False
    """Takes much of a small machine, and a short run has no time to make up for it: in long ones only, or by name."""
    drivers: ClassVar[int] = 0
    """So many drivers of tiering have to be there for it."""

    def __init__(self) -> None:
        self.target = ""
        """The one that `claim_one` takes, where it is not to be by chance."""
        self.seconds = 2.0
        self.about = ""
        self.victims: frozenset[str] = frozenset()
        self.began_ns = 0
        """When it had what it claims, on the monotonic clock: until then it waits for others. 0: it claims nothing."""
        self.has_disturbed = False
        """Said by one that may find that it cannot be made when others have felt it already."""
        self._claimed: set[str] = set()

    def begin(self, topology: Topology, chance: random.Random) -> None:
        raise NotImplementedError

    def end(self, topology: Topology) -> None:
        self.release(topology)

    def claim(self, topology: Topology, names: Iterable[str], *, within: float = 15.0) -> None:
        wanted = set(names)
        topology.claims.take(wanted, within=within)
        self._took(wanted)

    def claim_one(self, topology: Topology, names: list[str], chance: random.Random) -> str:
        name = topology.claims.take_one([self.target] if self.target else names, chance)
        self._took({name})
        self.about = name
        return name

    def release(self, topology: Topology) -> None:
        topology.claims.free(self._claimed)
        self._claimed = set()

    def _took(self, names: set[str]) -> None:
        self._claimed |= names
        self.began_ns = self.began_ns or time.monotonic_ns()
