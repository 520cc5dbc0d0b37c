"""What all checks share: what they look at together, what they know of the run, and what they return."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from lakelog.model.group import Exponential, Order, RetryPolicy
from prove.history.tables import SampleKind, Tables

MOST = 20
"""Counter-examples that a check returns at most: one is enough to be wrong."""


class CheckScope(Enum):
    """What facts a check needs together. A large history is cut along these, and each part judged by itself."""

    VALUE = "value"
    """All attempts and sights of the same value in a topic, of one or of many values: `attempt`, `seen`, and `dead` by
    `copy_topic` and `copy_hash`, for a redrive puts a value into the log once more."""
    IDENTITY = "identity"
    """All attempts and sights of the same identity in a topic, of one or of many, whatever their values: `attempt`,
    `seen`. Rows without an identity (0) are of no use here."""
    LOG = "log"
    """One partition: `attempt` (placed by their answer, or where the final read has their value), `seen`, `read`."""
    PRODUCER = "producer"
    """All attempts of one process, placed as above: `attempt`; with `read` of all partitions."""
    LEASE = "lease"
    """One group in one partition: `delivery`, `answer`, `call`, `progress`, `dead`, `cut`, and `seen` by FINAL."""
    GROUP = "group"
    """One group: `member`, `call`, `progress`, `sample`, `seen` by REPLAY and FINAL."""
    COLD = "cold"
    """One partition's files: `segment`, `seen` by COLD and FINAL, `read`, `cut`."""
    RUN = "run"
    """What is left: `sample`; `attempt` reduced to its times."""


@dataclass(frozen=True, kw_only=True)
class GroupRules:
    """The group's settings, as far as they decide what is right."""

    retries: RetryPolicy = field(default_factory=Exponential)
    order: Order = Order.KEY
    sticky: bool = True
    """Its assignor moves no more partitions than it must, as all do but range and round robin."""

    @property
    def limit(self) -> int:
        """So many failures make a dead letter."""
        return self.retries.max + 1

    def min_delay_ms(self, failures: int) -> int:
        return self.retries.delay_ms(failures, 1.0)

    def max_delay_ms(self, failures: int) -> int:
        return self.retries.delay_ms(failures, 0.0)


@dataclass(frozen=True, kw_only=True)
class FaultInterval:
    """One fault, on the machine's monotonic clock."""

    kind: str
    began_ns: int
    ended_ns: int
    about: str = ""


DATABASE_CLOCK_JUMPS = "clock of the database jumps"
"""A kind of fault that checks know: whatever was granted by the old time may be over."""


@dataclass(frozen=True, kw_only=True)
class RunInfo:
    """What the laboratory knows about its own run, and the histories do not say."""

    names: Mapping[int, str] = field(default_factory=dict)
    """Texts by their `text_id`: topics, groups, owners, processes."""
    rules: Mapping[tuple[int, int], GroupRules] = field(default_factory=dict)
    """By topic and group."""
    crashed: frozenset[int] = frozenset()
    """Processes that were killed and never came back; owners carry their process's name."""
    faults: tuple[FaultInterval, ...] = ()
    load_ns: tuple[int, int] = (0, 0)
    """Between these times clients made load; the last fault ended before `healed_ns`."""
    healed_ns: int = 0
    drained_ns: int = 0
    targets: Mapping[str, float] = field(default_factory=dict)
    """Limits of this run where it says its own, such as L3's share."""

    def name(self, number: int) -> str:
        return self.names.get(int(number), f"#{int(number) & (2**64 - 1):016x}")

    def rules_of(self, topic: int, group: int) -> GroupRules:
        return self.rules.get((int(topic), int(group)), GroupRules())


@dataclass(frozen=True, kw_only=True)
class Violation:
    """A counter-example: what is wrong, the message, and the calls that show it, as `<process>-<counter>`."""

    invariant: str
    what: str
    calls: tuple[str, ...] = ()
    place: tuple[str, int, int] | None = None
    """Topic, partition and offset, where it is about one message."""

    def __str__(self) -> str:
        return f"{self.invariant}: {self.what}" + (f" [{', '.join(self.calls)}]" if self.calls else "")


def rows_of(table: str, *kinds: SampleKind) -> Callable[[Tables], int]:
    """How many rows the table has; of samples, those of some kinds."""

    def count(tables: Tables) -> int:
        rows = tables[table]
        return int(np.isin(rows.kind, kinds).sum()) if kinds else len(rows)

    return count


@dataclass(frozen=True, kw_only=True)
class Invariant:
    """One promise: its number, what it says in a line, and the function that looks for a counter-example.

    A scope is judged by itself; `check` gets tables in no particular order and sorts what it needs. `doubt` says why
    nothing can be concluded, where that is so: then the verdict is *unknown*.
    """

    name: str
    says: str
    scope: CheckScope
    check: Callable[[Tables, RunInfo], list[Violation]]
    doubt: Callable[[Tables, RunInfo], str | None] = lambda tables, run: None
    about: Callable[[Tables], int] | None = None
    """How many rows of a scope it is about, where that is not all: a run that has none did not touch it."""
    worst: Callable[[Tables, RunInfo], float | None] = lambda tables, run: None
    """Of a promise about time: how many seconds it took, where it took most."""
