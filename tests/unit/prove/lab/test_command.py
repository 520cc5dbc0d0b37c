"""The steps of a run after the laboratory."""

from __future__ import annotations

import pytest

from prove.lab import command
from prove.lab.sizes import SIZES


def test_a_night_runs_the_tests_that_ci_leaves_out() -> None:
    slow, *versions = command._left_out_by_ci(SIZES["nightly"])
    assert slow == ("-m", "nightly")
    assert versions == [("--python", "3.12"), ("--python", "3.13")]
    assert command._left_out_by_ci(SIZES["ci"]) == []


def test_a_night_tests_the_other_pythons_that_the_classifiers_name() -> None:
    assert SIZES["nightly"].pythons == SIZES["release"].pythons == ("3.12", "3.13")
    assert SIZES["ci"].pythons == ()


@pytest.mark.parametrize(("status", "counts_as"), [(0, 0), (3, 0), (1, 1), (2, 1), (-9, 1)])
def test_a_python_that_is_not_installed_is_skipped_and_every_failure_counts(
    status: int, counts_as: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr(command, "_run", lambda argv: ran.append(argv) or status)
    assert command._test("--python", "3.13") == counts_as
    assert ran == [["scripts/test", "--python", "3.13", "-q"]]
