"""The interface of faults: a fault begins, lasts for some seconds and ends, and the history must show an effect.

A new kind is a class in one of the files in this folder, and a line in the table `KINDS`.
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
    """An effect in a history that shows a fault."""

    UNKNOWN = "a call of unknown outcome"
    REFUSED = "a call that was refused"
    REDELIVERED = "a message delivered again without being given back"
    RESTARTED = "a tiering driver that replaces a killed one"
    TIERED_AGAIN = "a tiering pass that failed, or found segments begun, taken or damaged"
    LIMITED = "a call or connection of a hostile tenant that a limit refused or ended"


PUBLISHING = frozenset({"producer", "numbered", "jobber", "shortener"})
WORKING = frozenset({"billing", "mailing", "jobs", "lagging"})
SHORTLY = frozenset({"jobs", "lagging"})
"""The roles of workers with leases of a few seconds."""
READING = frozenset({"tail", "replay", "sampler"})
MEMBERS = frozenset({"indexing", "churn"})
TIERING = frozenset({"driver"})
ALL = PUBLISHING | WORKING | READING | MEMBERS


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The symptoms that show a fault, the roles that can have them, and the longest time after the end of the fault."""

    signs: frozenset[Symptom]
    roles: frozenset[str] = ALL
    after_seconds: float = 3.0

    @classmethod
    def by(cls, *signs: Symptom, roles: frozenset[str] = ALL, after: float = 3.0) -> Evidence:
        return cls(signs=frozenset(signs), roles=roles, after_seconds=after)


class Fault(Protocol):
    """One fault of a run. `about` and `victims` are known after it has begun."""

    kind: ClassVar[str]
    counts_by: ClassVar[Evidence]
    seconds: float
    """The duration in seconds. The run may end the fault early."""
    about: str
    victims: frozenset[str]
    """Affected processes. If there are any, only they can show the fault."""

    def begin(self, topology: Topology, chance: random.Random) -> None: ...

    def end(self, topology: Topology) -> None: ...


class BaseFault:
    """The base of faults. The claims of a fault are released when it ends."""

    kind: ClassVar[str] = ""
    counts_by: ClassVar[Evidence] = Evidence.by(Symptom.UNKNOWN)
    is_hard: ClassVar[bool] = False
    """True if the fault takes much of a small machine. Only long runs inject it, or runs that name it."""
    drivers: ClassVar[int] = 0
    """Number of tiering drivers that the fault needs."""

    def __init__(self) -> None:
        self.target = ""
        """The name that `claim_one` takes instead of a random name."""
        self.seconds = 2.0
        self.about = ""
        self.victims: frozenset[str] = frozenset()
        self.began_ns = 0
        """When the fault got its claims, on the monotonic clock; 0 if it claims nothing."""
        self.has_disturbed = False
        """True if the fault has already disturbed clients, even if it then fails."""
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
