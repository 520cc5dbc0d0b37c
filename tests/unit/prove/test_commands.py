"""The helpers of commands that work in a folder."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from prove.commands import in_folder, seeded


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


def test_a_folder_with_anything_in_it_is_not_touched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").write_text("dear")
    assert in_folder("ci", tmp_path, lambda folder: pytest.fail("it worked there")) == 2
    assert "Choose another folder" in capsys.readouterr().out


def test_it_works_in_an_empty_one_one_that_is_to_be_made_and_a_new_one(tmp_path: Path) -> None:
    given: list[Path] = []
    for asked in (tmp_path, tmp_path / "new", None):
        assert in_folder("ci", asked, lambda folder: given.append(folder) or 1) == 1
    assert given[:2] == [tmp_path, tmp_path / "new"] and given[2].is_dir()
    given[2].rmdir()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_says_where_the_rest_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], number: signal.Signals
) -> None:
    def work(folder: Path) -> int:
        signal.raise_signal(number)
        return 0

    assert in_folder("ci", tmp_path, work) == 130
    assert str(tmp_path) in capsys.readouterr().out


def test_a_seed_is_the_one_asked_for_or_drawn() -> None:
    assert seeded(7) == 7
    assert len({seeded(None) for _ in range(20)}) > 10
