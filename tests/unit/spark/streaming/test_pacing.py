"""The least size of a micro-batch, and how long it waits for it."""

from __future__ import annotations

from lakelog.spark.streaming.pacing import Pacing


def test_a_micro_batch_starts_when_it_is_large_enough_or_has_waited_long_enough() -> None:
    pacing = Pacing(least=10, delay_seconds=5)
    assert not pacing.starts(3, 100.0)
    assert not pacing.starts(9, 104.9)
    assert pacing.starts(9, 105.0)
    assert not pacing.starts(1, 106.0), "the wait begins again after a micro-batch"
    assert pacing.starts(10, 106.1)


def test_the_wait_begins_with_the_first_message() -> None:
    pacing = Pacing(least=10, delay_seconds=5)
    assert not pacing.starts(0, 0.0)
    assert not pacing.starts(1, 60.0)
    assert not pacing.starts(1, 64.0)
    assert pacing.starts(1, 65.0)


def test_without_a_least_size_every_message_starts_one() -> None:
    assert Pacing(least=1, delay_seconds=900).starts(1, 0.0)
