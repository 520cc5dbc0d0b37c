"""Outcomes, readers, verbs and member events as plain integers.

Comparing an array with an enum member costs numpy ten times as much as comparing it with an integer. This matters for a
simulation of twenty thousand runs with a dozen rows each.
"""

from __future__ import annotations

from enum import IntEnum
from types import SimpleNamespace

from prove.history.tables import CallOutcome, MemberEvent, OwnerVerb, ReaderKind


def _numbers(kind: type[IntEnum]) -> SimpleNamespace:
    return SimpleNamespace(**{each.name: int(each) for each in kind})


OUTCOME = _numbers(CallOutcome)
READER = _numbers(ReaderKind)
VERB = _numbers(OwnerVerb)
MEMBERSHIP = _numbers(MemberEvent)
