"""Clusters of dead letters: one for each cause, with counts, times and an example."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from lakelog.model.dead_letter_clusters import cluster_dead_letters
from lakelog.model.dead_letters import DeadLetter
from lakelog.model.kinds import DeadLetterState

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def letter(number: int, error: str, *, topic: str = "orders", owner: str = "w-1") -> DeadLetter:
    return DeadLetter(
        id=f"1-0-{number}",
        topic=topic,
        partition=0,
        offset=number,
        error=error,
        deliveries=4,
        failures=4,
        at=NOON + timedelta(minutes=number),
        owner=owner,
        state=DeadLetterState.DEAD,
    )


def test_letters_with_one_cause_are_one_cluster() -> None:
    letters = [
        letter(1, "ValueError: no order 1"),
        letter(2, "TimeoutError", owner=""),
        letter(3, "ValueError: no order 3", topic="refunds", owner="w-2"),
    ]
    first, second = cluster_dead_letters(letters)
    assert (first.kind, first.pattern, first.count) == ("ValueError", "ValueError: no order <n>", 2)
    assert (first.first_at, first.last_at) == (NOON + timedelta(minutes=1), NOON + timedelta(minutes=3))
    assert (first.example, first.error) == ("1-0-3", "ValueError: no order 3")
    assert first.topics == ("orders", "refunds")
    assert (second.pattern, second.count, second.frame) == ("TimeoutError", 1, None)
    assert cluster_dead_letters([]) == ()


def test_of_equal_clusters_the_newest_is_first() -> None:
    found = cluster_dead_letters([letter(1, "A"), letter(2, "B")])
    assert [each.pattern for each in found] == ["B", "A"]
