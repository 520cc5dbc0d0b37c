"""The faults that count: those with an unknown outcome, a refusal, a redelivery or repeated tiering in the history.

The evidence must be in the time of the fault or shortly after, in calls of clients that the fault could affect, or of
its victims if it has any. A fault without evidence proves nothing, and is reported as without effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from prove.history.tables import CallOutcome, SampleKind, TableColumns, Tables, text_id
from prove.lab.fault_runner import InjectedFault
from prove.lab.faults import KINDS
from prove.lab.faults.fault import Evidence, Symptom

Array = npt.NDArray[Any]
_CALLS = ("attempt", "read", "call", "answer", "member")
_BEFORE_NS = 4_000_000_000
"""How long before a kill the last call of the client, which never ends, may have begun."""
THIEF = "-thief"
"""The suffix of owners whose answers must be refused."""


@dataclass(frozen=True, kw_only=True)
class Effect:
    """The number of occurrences of each symptom of a fault in the history."""

    fault: InjectedFault
    signs: Mapping[Symptom, int]

    @property
    def counts(self) -> bool:
        return any(self.signs.values())


class Effects:
    """Finds effects in the tables of one run. `roles` are the processes of each role."""

    def __init__(self, tables: Tables, roles: Mapping[str, Iterable[str]], names: Mapping[int, str]) -> None:
        self._roles = {role: np.array([text_id(name) for name in those], np.int64) for role, those in roles.items()}
        thieves = np.array([number for number, name in names.items() if name.endswith(THIEF)], np.int64)
        self._unknown = _gathered(tables, lambda rows: rows.outcome == CallOutcome.INFO)
        self._refused = _gathered(tables, lambda rows: (rows.outcome == CallOutcome.FAIL) & _honest(rows, thieves))
        self._deliveries = tables["delivery"].where(tables["delivery"].outcome == CallOutcome.OK)
        self._again = self._deliveries.where(self._deliveries.suspect)
        samples = tables["sample"]
        self._drivers = samples.where((samples.kind == SampleKind.DRIVER) & (samples.told > 0))
        self._limited = samples.where((samples.kind == SampleKind.LIMITED) & (samples.told > 0))
        self._passes = samples.where((samples.kind == SampleKind.TIERING) & (samples.stale | (samples.told > 0)))

    def of(self, fault: InjectedFault) -> Effect:
        shown = KINDS[fault.kind].counts_by
        signs = {sign: self._count(sign, fault, shown) for sign in sorted(shown.signs, key=lambda sign: sign.name)}
        return Effect(fault=fault, signs=signs)

    def _count(self, sign: Symptom, fault: InjectedFault, shown: Evidence) -> int:
        until = fault.ended_ns + int(shown.after_seconds * 1e9)
        if sign is Symptom.REDELIVERED:
            return self._redelivered(fault, until)
        if sign is Symptom.RESTARTED:
            # The driver that replaces a victim names it, however long its JVM takes to start.
            return int(np.isin(self._drivers.group, _ids(fault.victims)).sum())
        if sign is Symptom.LIMITED:
            mine = self._limited.where(np.isin(self._limited.process, _ids(fault.victims)))
            return int(mine.told.sum())
        if sign is Symptom.TIERED_AGAIN:
            process, at = self._passes.process, self._passes.at_ns
        else:
            process, at = self._unknown if sign is Symptom.UNKNOWN else self._refused
        began = fault.began_ns - (_BEFORE_NS if fault.victims else 0)
        inside = (at >= began) & (at <= until) & np.isin(process, self._touched(fault, shown))
        return int(inside.sum())

    def _redelivered(self, fault: InjectedFault, until: int) -> int:
        """Return the redeliveries after a lost owner.

        For a fault with victims, return only those of messages that victims held.
        """
        again = self._again
        inside = (again.completed_ns >= fault.began_ns) & (again.completed_ns <= until)
        if not fault.victims:
            return int(inside.sum())
        given = self._deliveries
        mine = np.isin(given.process, _ids(fault.victims)) & (given.completed_ns <= fault.ended_ns)
        return int((inside & np.isin(_places(again), _places(given.where(mine)))).sum())

    def _touched(self, fault: InjectedFault, shown: Evidence) -> Array:
        if fault.victims:
            return _ids(fault.victims)
        found = [self._roles[role] for role in shown.roles if role in self._roles]
        return np.concatenate(found) if found else np.zeros(0, np.int64)


def _gathered(tables: Tables, chosen: Callable[[TableColumns], Array]) -> tuple[Array, Array]:
    """Return processes and times of calls. A call without an end has the time when it began."""
    processes, times = [], []
    for name in _CALLS:
        rows = tables[name].where(chosen(tables[name]))
        processes.append(rows.process)
        times.append(np.where(rows.completed_ns > 0, rows.completed_ns, rows.invoked_ns))
    return np.concatenate(processes), np.concatenate(times)


def _honest(rows: TableColumns, thieves: Array) -> Array:
    return ~np.isin(rows.owner, thieves) if "owner" in rows.arrays else np.ones(len(rows), np.bool_)


def _places(rows: TableColumns) -> Array:
    """Return a code for each message of each group. Collisions are possible, but do not matter here."""
    found: Array = (rows.topic * 31 + rows.group * 17 + rows.partition) * np.int64(1_000_003) + rows.offset
    return found


def _ids(names: Iterable[str]) -> Array:
    return np.array([text_id(name) for name in names], np.int64)
