"""The types that all checks share: scopes, facts about the run, and violations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from lakelog.model.group import Exponential, Order, RetryPolicy
from prove.history.tables import SampleKind, Tables

MOST = 20
"""The largest number of counter-examples that a check returns. One is enough to refute the invariant."""


class CheckScope(Enum):
    """The rows that a check needs together. A large history is divided by scope and judged part by part."""

    VALUE = "value"
    """All attempts and observations of the same value in a topic: `attempt`, `seen`, and `dead` by `copy_topic` and
    `copy_hash`, because a redrive publishes a value again. A part holds one or many values."""
    IDENTITY = "identity"
    """All attempts and observations of the same identity in a topic, with any value: `attempt`, `seen`. Rows
    without an identity (0) are ignored. A part holds one or many identities.
    """
    LOG = "log"
    """One partition: `attempt` (located by its response, or by its value in the final read), `seen`, `read`."""
    PRODUCER = "producer"
    """One process: all its `attempt`, located as for a partition, and `read` of all partitions."""
    LEASE = "lease"
    """One group in one partition: `delivery`, `answer`, `call`, `progress`, `dead`, `cut`, and `seen` by FINAL."""
    GROUP = "group"
    """One group: `member`, `call`, `progress`, `sample`, `seen` by REPLAY and FINAL."""
    COLD = "cold"
    """One partition's files: `segment`, `seen` by COLD and FINAL, `read`, `cut`."""
    RUN = "run"
    """The whole run: `sample`, and `attempt` reduced to its times."""


@dataclass(frozen=True, kw_only=True)
class GroupRules:
    """The group settings that the checks need."""

    retries: RetryPolicy = field(default_factory=Exponential)
    order: Order = Order.KEY
    sticky: bool = True
    """True if the assignor moves no more partitions than necessary, which all except range and round robin do."""

    @property
    def limit(self) -> int:
        """Return the number of failures after which a message becomes a dead letter."""
        return self.retries.max + 1

    def min_delay_ms(self, failures: int) -> int:
        return self.retries.delay_ms(failures, 1.0)

    def max_delay_ms(self, failures: int) -> int:
        return self.retries.delay_ms(failures, 0.0)


@dataclass(frozen=True, kw_only=True)
class FaultInterval:
    """One fault, with times on the machine's monotonic clock."""

    kind: str
    began_ns: int
    ended_ns: int
    about: str = ""


DATABASE_CLOCK_JUMPS = "clock of the database jumps"
"""The kind of fault in which the database clock jumps. Leases that were granted before may have expired."""


@dataclass(frozen=True, kw_only=True)
class RunInfo:
    """Facts about the run that the laboratory knows and the histories do not contain."""

    names: Mapping[int, str] = field(default_factory=dict)
    """Texts by their `text_id`: topics, groups, owners, processes."""
    rules: Mapping[tuple[int, int], GroupRules] = field(default_factory=dict)
    """The settings of each group, by topic and group."""
    crashed: frozenset[int] = frozenset()
    """Processes that were killed and not restarted. The name of an owner contains the name of its process."""
    faults: tuple[FaultInterval, ...] = ()
    load_ns: tuple[int, int] = (0, 0)
    """Start and end of the load. The last fault ended before `healed_ns`."""
    healed_ns: int = 0
    drained_ns: int = 0
    targets: Mapping[str, float] = field(default_factory=dict)
    """The targets of this run, such as the share of L3."""

    def name(self, number: int) -> str:
        return self.names.get(int(number), f"#{int(number) & (2**64 - 1):016x}")

    def rules_of(self, topic: int, group: int) -> GroupRules:
        return self.rules.get((int(topic), int(group)), GroupRules())


@dataclass(frozen=True, kw_only=True)
class Violation:
    """A counter-example: the error, the message, and the calls that show the error, as `<process>-<counter>`."""

    invariant: str
    what: str
    calls: tuple[str, ...] = ()
    place: tuple[str, int, int] | None = None
    """Topic, partition and offset, if the violation is about one message."""

    def __str__(self) -> str:
        return f"{self.invariant}: {self.what}" + (f" [{', '.join(self.calls)}]" if self.calls else "")


def rows_of(table: str, *kinds: SampleKind) -> Callable[[Tables], int]:
    """Return a function that counts the rows of a table, or of samples of the given kinds."""

    def count(tables: Tables) -> int:
        rows = tables[table]
        return int(np.isin(rows.kind, kinds).sum()) if kinds else len(rows)

    return count


@dataclass(frozen=True, kw_only=True)
class Invariant:
    """One promise: its number, a one-line statement, and the function that looks for a counter-example.

    Each scope is judged separately. `check` receives tables in no particular order and sorts the columns that it needs.
    `doubt` returns the reason if nothing can be concluded; the verdict is then *unknown*.
    """

    name: str
    says: str
    scope: CheckScope
    check: Callable[[Tables, RunInfo], list[Violation]]
    doubt: Callable[[Tables, RunInfo], str | None] = lambda tables, run: None
    about: Callable[[Tables], int] | None = None
    """A function that counts the rows of a scope that concern the invariant, if not all do. A run without such rows
    did not test the invariant.
    """
    worst: Callable[[Tables, RunInfo], float | None] = lambda tables, run: None
    """A function that returns the longest time in seconds, for a promise about time."""
