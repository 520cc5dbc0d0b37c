"""Outcomes, readers, verbs and memberships as the plain numbers that columns have.

To compare an array with a member of an enum costs numpy ten times what a plain number costs: much, where a run is a
dozen rows and there are twenty thousand of them.
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
