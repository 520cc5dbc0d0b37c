"""S2: nothing is read that was not attempted, with its key and in its topic; nothing refused is ever visible.

It matches by value, so values must be told apart; how often a value is there is S4's question.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from tests.kit.checks.basis import FinalRead, Violation, fetches, publishes
from tests.kit.history import Operation

Attempts = dict[tuple[str, str, str | None], list[Operation]]


def check(operations: Sequence[Operation], final: FinalRead) -> list[Violation]:
    attempts: Attempts = defaultdict(list)
    for operation in publishes(operations):
        attempts[operation.topic, operation.hash, operation.key].append(operation)
    violations = []
    for place, message in final.places():
        violations += _judge(attempts, f"final read at {place}", (place[0], message.hash, message.key), None)
    for fetch in fetches(operations):
        for seen in fetch.messages:
            where = f"fetch {fetch.id} at {(fetch.topic, fetch.asked_partition, seen.offset)}"
            violations += _judge(attempts, where, (fetch.topic, seen.hash, seen.key), fetch)
    return violations


def _judge(
    attempts: Attempts, where: str, found: tuple[str, str, str | None], fetch: Operation | None
) -> list[Violation]:
    tried = attempts.get(found, [])
    by = (fetch,) if fetch else ()
    if not tried:
        return [Violation(invariant="S2", what=f"{where}: {found} was never attempted", operations=by)]
    possible = [operation for operation in tried if operation.outcome != "fail"]
    if not possible:
        return [Violation(invariant="S2", what=f"{where}: {found} was refused", operations=(*tried, *by))]
    if fetch is not None and fetch.completed_ns is not None:
        first = min(possible, key=lambda operation: operation.invoked_ns)
        if fetch.completed_ns < first.invoked_ns:
            return [
                Violation(invariant="S2", what=f"{where}: {found} was read before its attempt", operations=(first, *by))
            ]
    return []
