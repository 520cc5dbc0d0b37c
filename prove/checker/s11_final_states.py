"""S11: after the drain each message is exactly one of acked, dead, discarded, filtered, expired or cut, and counted.

No message stays leased, waiting or skipped.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from prove.checker.invariant import MOST, CheckScope, Invariant, RunInfo, Violation
from prove.checker.lease_history import LeaseHistory, doubt, leases_of
from prove.checker.row_groups import Array, some
from prove.checker.row_matching import true_at
from prove.history.tables import OwnerVerb, Tables


@dataclass(frozen=True, kw_only=True)
class _FinalStates:
    """The messages that may have reached each state in the last epoch, and those that certainly did."""

    offsets: Array
    maybe: dict[str, Array]
    surely: dict[str, Array]


def check(tables: Tables, run: RunInfo) -> list[Violation]:
    leases = leases_of(tables, run)
    last = leases.last
    if last is None:
        known = len(leases.offsets) == 0
        return [] if known else [leases.wrong("S11", "its final state is unknown")]
    return (_letters(leases, last) + _drained(leases, last) + _ended(leases, last))[:MOST]


def _letters(leases: LeaseHistory, last: int) -> list[Violation]:
    if leases.seeks.count:
        # A message may die once in each position epoch.
        return []
    offsets, times = np.unique(leases.letters.offset, return_counts=True)
    found = [leases.wrong("S11", f"it has {times[row]} dead letters", offset=offsets[row]) for row in some(times > 1)]
    counted = int(leases.samples.dead[last])
    if counted != len(offsets):
        found.append(leases.wrong("S11", f"it counts {counted} dead, and has {len(offsets)} letters"))
    return found


def _drained(leases: LeaseHistory, last: int) -> list[Violation]:
    end = leases.samples
    committed, frontier, high = end.committed[last], end.frontier[last], end.high_watermark[last]
    left = {name: int(getattr(end, name)[last]) for name in ("leased", "waiting", "skipped")}
    if any(left.values()) or frontier < high:
        told = ", ".join(f"{number} {name}" for name, number in left.items())
        return [leases.wrong("S11", f"not drained: {told}, frontier {frontier} of {high}")]
    if committed != high:
        return [leases.wrong("S11", f"committed {committed} of {high}")]
    return []


def _ended(leases: LeaseHistory, last: int) -> list[Violation]:
    end, ends = leases.samples, _ends(leases, int(leases.samples.start[last]))
    dead, found = leases.is_dead(ends.offsets), []
    if not leases.seeks.count:
        for row in some(dead & (ends.surely["acked"] | ends.surely["discarded"])):
            how = " and ".join(name for name in ends.maybe if ends.maybe[name][row])
            found.append(leases.wrong("S11", f"it is {how}, and also a dead letter", offset=ends.offsets[row]))
    lost = true_at(~dead & ~ends.maybe["acked"] & ~ends.maybe["discarded"])
    passed = int(end.filtered[last] + end.expired[last] + end.cut[last])
    if len(lost) > passed:
        such = ", ".join(map(str, ends.offsets[lost[:3]].tolist()))
        found.append(
            leases.wrong("S11", f"{len(lost)} messages have no final state, such as {such}; {passed} were passed over")
        )
    for name, maybe in ends.maybe.items():
        counted, surely = int(getattr(end, name)[last]), int(ends.surely[name].sum())
        if not surely <= counted <= maybe.sum():
            told = f"{surely} are certain, {maybe.sum() - surely} more are possible"
            found.append(leases.wrong("S11", f"it counts {counted} {name}; {told}"))
    return found


def _ends(leases: LeaseHistory, start: int) -> _FinalStates:
    said = leases.said
    offsets = leases.all_offsets[leases.all_offsets >= start]
    maybe, surely = {}, {}
    # Only answers of the last epoch count.
    mine = true_at((said.delivery >= 0) & (said.offset >= start))
    if leases.seeks.count:
        mine = mine[leases.epoch[said.delivery[mine]] == leases.seeks.count]
    at, verb = np.searchsorted(offsets, said.offset[mine]), said.verb[mine]
    ok, happened = said.ok[mine], said.happened[mine]
    for name, meant in (("acked", OwnerVerb.ACK), ("discarded", OwnerVerb.DISCARD)):
        maybe[name], surely[name] = np.zeros(len(offsets), np.bool_), np.zeros(len(offsets), np.bool_)
        maybe[name][at[(verb == meant) & happened]] = True
        surely[name][at[(verb == meant) & ok]] = True
    return _FinalStates(offsets=offsets, maybe=maybe, surely=surely)


INVARIANT = Invariant(
    name="S11",
    says="after the drain each message is exactly one of acked, dead, discarded, filtered, expired or cut",
    scope=CheckScope.LEASE,
    check=check,
    doubt=doubt,
)
