"""A tail reader continues where its last response ended, and repeats that response after a failure."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from prove.lab.load.plan import ReaderPlan
from prove.lab.load.reader import LoadReader


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[LoadReader]:
    for name in ("stop", "history"):
        (tmp_path / name).mkdir()
    plan = ReaderPlan(name="tail-0", role="tail", slot=0, folder=str(tmp_path), ports=[1], seed=1, topic="orders")
    made = LoadReader(plan)
    yield made
    made._recorder.close()


def test_a_failure_takes_it_back_to_where_its_last_answer_began(reader: LoadReader) -> None:
    asked: list[int] = []
    answers: list[dict[str, Any] | None] = [{"next_offset": 10}, {"next_offset": 25}, {"next_offset": 25}, None, None]

    class Fetcher:
        def fetch(self, partition: int, offset: int, **more: Any) -> dict[str, Any] | None:
            asked.append(offset)
            return answers[len(asked) - 1]

    reader._fetcher = Fetcher()  # type: ignore[assignment]
    reader._next = {0: 0}
    for _ in answers:
        reader._follow()
    assert asked == [0, 10, 25, 25, 10]
    assert reader._next == {0: 10}
