"""Patterns of `like`: the same results as a regular expression without backtracking, in bounded slices."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from itertools import islice

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lakelog.model import like as module
from lakelog.model.filter import FilterInput, parse
from lakelog.model.like import SLICE_STEPS, LikePattern, OutOfSteps, StepBudget


def _by_regex(pattern: str) -> Callable[[str], bool]:
    """Match with atomic groups of a regular expression, which need length of the text times length of the pattern."""
    stretches: list[list[str]] = [[]]
    for sign in re.findall(r"\\[\\%_]|.", pattern, re.DOTALL):
        if sign == "%":
            stretches.append([])
        else:
            stretches[-1].append("." if sign == "_" else re.escape(sign[-1]))
    if len(stretches) == 1:
        whole = re.compile("".join(stretches[0]), re.DOTALL)
        return lambda text: whole.fullmatch(text) is not None
    first, *middle, last = ("".join(stretch) for stretch in stretches)
    begin = re.compile(first + "".join(f"(?>.*?{stretch})" for stretch in middle), re.DOTALL)
    end, length = re.compile(last, re.DOTALL), len(stretches[-1])

    def fits(text: str) -> bool:
        found = begin.match(text)
        rest = len(text) - length
        return found is not None and found.end() <= rest and end.fullmatch(text, rest) is not None

    return fits


@given(st.text("ab\n\\%_Ü", max_size=20), st.text("ab\n\\%_Ü", max_size=12))
@example("ab", "\\")
@example("a\\", "%\\")
@example("a%b", "%\\%_")
@example("aab", "%a_b%")
@example("aaab", "%_a_b")
def test_patterns_match_as_the_regular_expression_did(text: str, pattern: str) -> None:
    assert LikePattern(pattern).matches(text) is _by_regex(pattern)(text)


@given(st.text("ab\nÜ", max_size=20), st.text("ab\n\\%_Ü", max_size=12))
@example("xaab", "%a_b%")
@example("aabab", "%_b%b_b%")
def test_long_pieces_match_as_the_regular_expression_did(text: str, pattern: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "LONG_PIECE", 0)
        assert LikePattern(pattern).matches(text) is _by_regex(pattern)(text)


@given(st.text("ab", max_size=40), st.text("ab%_", max_size=12), st.integers(1, 4))
@example("ab" * 20, "%a_a_b_%b", 1)
def test_a_search_in_slices_has_the_same_result(text: str, pattern: str, steps: int) -> None:
    wanted = parse(f"error like '{pattern}' and not error like '{pattern}x' or key = 'k'")
    subject = FilterInput(error=text, steps=StepBudget(0))
    assert subject.steps is not None
    while True:
        subject.steps.left = steps
        try:
            found = wanted.matches(subject)
            break
        except OutOfSteps:
            pass
    assert found is wanted.matches(FilterInput(error=text))


@pytest.mark.parametrize(
    "pattern", ["%" + "a" * 2000 + "b%", "%" + "a_" * 1000 + "b%", "%" + "_" * 2000 + "b%", "%" + "a_" * 30 + "b%"]
)
def test_no_slice_is_longer_than_the_limit(pattern: str) -> None:
    text = "a" * (1 << 20)
    longest, begun = 0.0, time.process_time()
    for steps in islice(LikePattern(pattern).search(text), 100):
        longest, begun = max(longest, time.process_time() - begun), time.process_time()
        assert steps <= len(text) + 2 * SLICE_STEPS
    assert longest < 0.1


def test_a_pattern_without_wildcards_for_one_character_is_linear() -> None:
    begun = time.process_time()
    assert not LikePattern("%" + "a" * 2000 + "b%").matches("a" * (1 << 20))
    assert time.process_time() - begun < 0.5


def test_reading_a_value_takes_steps() -> None:
    subject = FilterInput(value=b'{"a": "x"}' + b" " * 1000, steps=StepBudget(100))
    assert subject.steps is not None
    with pytest.raises(OutOfSteps):
        parse("value.a like '%x%'").matches(subject)
    subject.steps.left = 100
    assert parse("value.a like '%x%'").matches(subject)


def test_a_filter_knows_its_weight() -> None:
    assert parse("key = 'a'").weight == 1
    assert parse("value.a = 'a'").weight < 10
    assert parse("value like '%abc%'").weight == 10
    assert parse("key like '%" + "a_" * 100 + "%' or key = 'b'").weight > 200
