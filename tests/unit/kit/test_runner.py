"""The doors and the runner: sizes, coroutine tests, coroutine properties, waiting."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.size import Size
from tests.kit.waiting import NeverTrue, eventually, eventually_async

ROOT = Path(__file__).parents[3]
_examples: list[int] = []


async def test_coroutines_run_in_a_loop(size: Size) -> None:
    assert asyncio.get_running_loop().is_running()
    assert size in Size


@settings(max_examples=5, deadline=None, database=None)
@given(number=st.integers())
async def test_properties_may_be_coroutines(number: int) -> None:
    await asyncio.sleep(0)
    _examples.append(number)


def test_the_property_above_really_ran() -> None:
    assert _examples


def test_size_picks() -> None:
    assert Size.CI.pick(ci=1, full=10) == 1
    assert Size.FULL.pick(ci=1, full=10) == 10


def test_eventually_returns_what_came_true_and_fails_when_nothing_does() -> None:
    answers = iter([0, 0, 7])
    assert eventually(lambda: next(answers), every=0.001) == 7
    with pytest.raises(NeverTrue, match=r"the moon.*last answer: False"):
        eventually(lambda: False, within=0.01, every=0.001, what="the moon")


async def test_eventually_async_takes_both_colours() -> None:
    answers = iter([0, 5])

    async def condition() -> int:
        return next(answers)

    assert await eventually_async(condition, every=0.001) == 5
    assert await eventually_async(lambda: 3) == 3
    with pytest.raises(NeverTrue):
        await eventually_async(lambda: None, within=0.01, every=0.001)


def _pytest_on(tmp_path: Path, text: str) -> subprocess.CompletedProcess[str]:
    path = tmp_path / "test_inner.py"
    path.write_text(text)
    conftest = tmp_path / "conftest.py"
    conftest.write_text("from tests.conftest import *\nfrom tests.conftest import pytest_pyfunc_call\n")
    argv = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-c",
        str(ROOT / "pyproject.toml"),
        str(path),
    ]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60)


def test_a_failing_or_stuck_coroutine_fails_its_test(tmp_path: Path) -> None:
    done = _pytest_on(
        tmp_path,
        "import asyncio, pytest, warnings\n"
        "async def test_fails():\n    assert False\n"
        "@pytest.mark.timeout(4)\nasync def test_is_stuck():\n    await asyncio.Event().wait()\n"
        "def test_warns():\n    warnings.warn('old')\n"
        "async def test_passes():\n    pass\n",
    )
    assert "3 failed, 1 passed" in done.stdout, done.stdout
    assert "TimeoutError" in done.stdout
