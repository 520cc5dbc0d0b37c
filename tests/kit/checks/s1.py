"""S1: every ok publish is at its offset in the final read, or provably retired: below the log start.

It does not look at other messages than acked ones, nor at whether retention was allowed to retire them.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.kit.checks.basis import FinalRead, Violation, placed, publishes
from tests.kit.history import Operation


def check(operations: Sequence[Operation], final: FinalRead) -> list[Violation]:
    there = {place: message.hash for place, message in final.places()}
    starts = final.log_starts()
    violations = []
    for operation in publishes(operations):
        if operation.outcome != "ok":
            continue
        place = placed(operation)
        if place is None:
            violations.append(_violation("an ok without a place", operation))
        elif place[:2] not in starts:
            violations.append(_violation(f"partition {place[:2]} is not in the final read", operation))
        elif place[2] >= starts[place[:2]]:
            found = there.get(place)
            if found != operation.hash:
                violations.append(_violation(f"acked {operation.hash} at {place}, found {found}", operation))
    return violations


def _violation(what: str, operation: Operation) -> Violation:
    return Violation(invariant="S1", what=what, operations=(operation,))
