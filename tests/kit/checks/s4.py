"""S4: an idempotency key has at most one offset in its topic, and the same key with other bytes is refused.

Retries of one producer's sequence are held to the same, and a value without either is there at most as often as it was
attempted. It takes every run to be shorter than the memory of keys, which is 24 h.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from tests.kit.checks.basis import FinalRead, Place, Violation, identity, placed, publishes
from tests.kit.history import Operation


def check(operations: Sequence[Operation], final: FinalRead) -> list[Violation]:
    attempts = [operation for operation in publishes(operations) if operation.outcome != "fail"]
    return _answers(attempts) + _keys_read(final) + _copies_read(attempts, final)


def _answers(attempts: Sequence[Operation]) -> list[Violation]:
    """What clients were told: one identity, one place, one content."""
    first: dict[tuple[str, ...], Operation] = {}
    violations = []
    for operation in attempts:
        name = identity(operation)
        if name is None or placed(operation) is None:
            continue
        known = first.setdefault(name, operation)
        if placed(known) != placed(operation):
            what = f"{name} was acked at {placed(known)} and {placed(operation)}"
            violations.append(Violation(invariant="S4", what=what, operations=(known, operation)))
        if known.hash != operation.hash:
            what = f"{name} was accepted with {known.hash} and with other bytes, {operation.hash}"
            violations.append(Violation(invariant="S4", what=what, operations=(known, operation)))
    return violations


def _keys_read(final: FinalRead) -> list[Violation]:
    """Keys that the final read carries itself."""
    places: dict[tuple[str, str], list[Place]] = defaultdict(list)
    for place, message in final.places():
        if message.idempotency_key is not None:
            places[place[0], message.idempotency_key].append(place)
    doubles = {name: where for name, where in places.items() if len(where) > 1}
    return [Violation(invariant="S4", what=f"key {name} is at {where}") for name, where in doubles.items()]


def _copies_read(attempts: Sequence[Operation], final: FinalRead) -> list[Violation]:
    """Copies of a value beyond what its attempts can have made, known or unknown in outcome."""
    by_value: dict[tuple[str, str], list[Operation]] = defaultdict(list)
    for operation in attempts:
        by_value[operation.topic, operation.hash].append(operation)
    places: dict[tuple[str, str], list[Place]] = defaultdict(list)
    for place, message in final.places():
        places[place[0], message.hash].append(place)
    violations = []
    for value, where in places.items():
        tried = by_value.get(value, [])
        allowed = len({identity(operation) or operation.id for operation in tried})
        # A value that nobody attempted is S2's.
        if tried and len(where) > allowed:
            what = f"{value} is {len(where)} times there, at {where}; its attempts allow {allowed}"
            violations.append(Violation(invariant="S4", what=what, operations=tuple(tried)))
    return violations
