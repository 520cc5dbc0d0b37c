"""L7: reported lag and oldest age are accurate to one second, or marked stale."""

from __future__ import annotations

import pytest

from prove.checker import l7_lag_accuracy as l7
from prove.history.tables import SampleKind
from tests.unit.prove.checker.cases import assert_kept, assert_nothing_said_of_nothing
from tests.unit.prove.checker.rows import Rows, run
from tests.unit.prove.checker.samples import sample


def series(kind: SampleKind, truths: list[int], told: dict[int, int], **more: object) -> Rows:
    """Return two samples per second that report the true value, except those in `told`."""
    made = (sample(kind, told.get(at, truth), truth, at * 500, **more) for at, truth in enumerate(truths))
    return sum(made, Rows())


BROKEN: dict[str, Rows] = {
    "a lag that does not change": series(SampleKind.LAG, [100] * 9, {4: 90}),
    "a lag of three seconds ago": series(SampleKind.LAG, [100 * each for each in range(20)], {15: 900}),
    "too much": series(SampleKind.LAG, [0] * 9, {4: 1}),
    "an age that is too young": series(SampleKind.OLDEST_AGE_MS, [500 * each for each in range(20)], {15: 4000}),
    "of another group": series(SampleKind.LAG, [100] * 9, {4: 90}) + series(SampleKind.LAG, [90] * 9, {}, group="h"),
}
KEPT: dict[str, Rows] = {
    "true": series(SampleKind.LAG, [3, 5, 900, 2], {}),
    "of half a second ago": series(SampleKind.LAG, [100 * each for each in range(20)], {15: 1450}),
    "of a second ago": series(SampleKind.LAG, [100 * each for each in range(20)], {15: 1300}),
    "a peak between two": series(SampleKind.LAG, [10, 200, 10, 180, 10, 190, 10, 170, 10], {4: 250}),
    "a peak a second ago": series(SampleKind.LAG, [100, 100, 300, 100, 100, 100, 100, 100, 100], {4: 400}),
    "stale": series(SampleKind.LAG, [100] * 4, {}) + sample(SampleKind.LAG, 7, 100, 2000, stale=1)
    + sample(SampleKind.LAG, 100, 100, 2500) + sample(SampleKind.LAG, 100, 100, 3500),
    "nothing was told": series(SampleKind.LAG, [100] * 9, {4: -1}),
    "at the end": series(SampleKind.LAG, [100] * 9, {8: 1, 7: 1, 1: 1, 0: 1}),
    "an age, a second off": series(SampleKind.OLDEST_AGE_MS, [500 * each for each in range(20)], {15: 6000}),
    "samples of something else": series(SampleKind.MEMORY, [100] * 9, {4: 1}),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_l7_catches(case: str) -> None:
    (found,) = l7.check(BROKEN[case].tables(), run())
    assert str(found).startswith("L7: g in t was reported to have a")


@pytest.mark.parametrize("case", KEPT)
def test_l7_lets_pass(case: str) -> None:
    assert_kept(l7, KEPT[case])


def test_l7_counts_what_is_stale() -> None:
    assert l7.figure((sample(SampleKind.LAG, 1, 1, stale=1) + sample(SampleKind.LAG, 1, 1)).tables(), run()) == 0.5


def test_l7_without_a_history() -> None:
    assert_nothing_said_of_nothing(l7)
    assert l7.figure(Rows().tables(), run()) is None


@pytest.mark.parametrize(("told", "count"), [(139, 0), (141, 1)])
def test_l7_a_lag_may_be_off_by_what_is_published_in_a_second(told: int, count: int) -> None:
    rows = series(SampleKind.LAG, [100] * 9, {4: told}).tables()
    assert len(l7.check(rows, run(targets={"L7": 40.0}))) == count
