"""The rule for retries: which errors pass, and what a caller gets after an attempt that may have been written."""

from __future__ import annotations

import pytest

from lakelog.client.retrying import RetryRule, is_outage, is_passing, is_undecided, may_be_written
from lakelog.errors import LakelogError, NotAllowed, OutcomeUnknown, Overloaded, Unavailable

UNKNOWN = [OutcomeUnknown("lost"), LakelogError("internal")]
NOT_WRITTEN = [Unavailable("away"), Overloaded("full")]


@pytest.mark.parametrize("error", [*UNKNOWN, *NOT_WRITTEN])
def test_passing_errors(error: LakelogError) -> None:
    assert is_passing(error) and is_undecided(error)
    assert may_be_written(error) is (error in UNKNOWN)
    assert is_outage(error) is not isinstance(error, Overloaded)


def test_a_refusal_does_not_pass() -> None:
    refusal = NotAllowed("no")
    assert not is_passing(refusal) and not is_undecided(refusal) and not may_be_written(refusal)
    assert not is_undecided("a result")


@pytest.mark.parametrize("error", NOT_WRITTEN)
def test_a_call_that_was_not_written_is_always_repeated(error: LakelogError) -> None:
    assert RetryRule(is_repeatable=False).allows(error)


@pytest.mark.parametrize("error", UNKNOWN)
def test_a_call_that_may_have_been_written_is_repeated_only_if_that_is_safe(error: LakelogError) -> None:
    assert RetryRule().allows(error)
    rule = RetryRule(is_repeatable=False)
    assert not rule.allows(error)
    assert not rule.allows(Unavailable("away"))


def test_a_refusal_after_an_unknown_outcome_is_an_unknown_outcome() -> None:
    rule, refusal = RetryRule(), NotAllowed("no")
    assert rule.final(refusal) is refusal
    assert rule.allows(UNKNOWN[0])
    assert not rule.allows(refusal)
    assert isinstance(rule.final(refusal), OutcomeUnknown)
    assert "no" in rule.final(refusal).detail
    assert rule.final(UNKNOWN[1]) is UNKNOWN[1]
