"""The memory budget: over it is refused at once, and everything is given back."""

from __future__ import annotations

import pytest

from lakelog.engine.budget import Budget
from lakelog.errors import Overloaded


def test_what_does_not_fit_is_refused_with_a_time_to_wait() -> None:
    budget = Budget(100)
    budget.take(60)
    with pytest.raises(Overloaded) as caught:
        budget.take(41)
    assert caught.value.retry_after == 1
    assert budget.used == 60
    budget.take(40)
    budget.give(100)
    assert budget.used == 0


def test_what_is_held_is_given_back_also_after_an_error() -> None:
    budget = Budget(10)
    with pytest.raises(ValueError, match="x"), budget.held(10):
        assert budget.used == 10
        raise ValueError("x")
    assert budget.used == 0


def test_a_refused_hold_takes_nothing() -> None:
    budget = Budget(10)
    with budget.held(8):
        with pytest.raises(Overloaded), budget.held(3):
            raise AssertionError("not reached")
        assert budget.used == 8
    assert budget.used == 0
