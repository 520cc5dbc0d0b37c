"""The policy of repeats, without a clock of its own."""

from __future__ import annotations

import pytest

from lakelog.client.retrying import Attempts, CallRetryPolicy, is_passing, may_be_written
from lakelog.errors import (
    EpochChanged,
    InvalidRequest,
    LakelogError,
    OutcomeUnknown,
    Overloaded,
    SequenceRefused,
    Unavailable,
)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_pauses_grow_and_have_a_longest() -> None:
    clock = Clock()
    attempts = Attempts(
        CallRetryPolicy(first_pause_seconds=0.1, longest_pause_seconds=1.0), clock=clock, chance=lambda: 1.0
    )
    assert [attempts.pause(Unavailable()) for _ in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_pauses_are_spread() -> None:
    pauses = [
        Attempts(CallRetryPolicy(first_pause_seconds=1.0), chance=lambda c=c: c).pause(Unavailable())
        for c in (0.0, 0.5, 1.0)
    ]
    assert pauses == [0.5, 0.75, 1.0]


def test_a_server_may_ask_for_a_longer_pause() -> None:
    attempts = Attempts(CallRetryPolicy(), clock=Clock())
    assert attempts.pause(Overloaded(retry_after=7)) == 7.0


def test_no_pause_that_outlasts_the_limit() -> None:
    clock = Clock()
    attempts = Attempts(CallRetryPolicy(limit_seconds=10.0, first_pause_seconds=1.0), clock=clock, chance=lambda: 1.0)
    assert attempts.pause(Unavailable()) == 1.0
    clock.now = 8.5
    assert attempts.pause(Unavailable()) is None
    assert attempts.pause(Overloaded(retry_after=60)) is None


def test_a_try_gets_its_share_and_no_more_than_is_left() -> None:
    clock = Clock()
    attempts = Attempts(CallRetryPolicy(limit_seconds=30.0, try_seconds=10.0), clock=clock)
    assert attempts.seconds() == 10.0
    assert attempts.seconds(wait=5.0) == 15.0
    clock.now = 26.0
    assert attempts.seconds() == 4.0
    clock.now = 40.0
    assert attempts.seconds() == 0.1


@pytest.mark.parametrize(
    ("error", "passing", "unknown"),
    [
        (Unavailable(), True, False),
        (Overloaded(), True, False),
        (OutcomeUnknown(), True, True),
        (LakelogError("internal"), True, True),
        (InvalidRequest(), False, False),
        (SequenceRefused(), False, False),
        (EpochChanged(), False, False),
    ],
)
def test_what_errors_mean(error: LakelogError, passing: bool, unknown: bool) -> None:
    assert (is_passing(error), may_be_written(error)) == (passing, unknown)
