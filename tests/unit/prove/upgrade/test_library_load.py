"""The comparison of what programs with the Python client published, stored and handled."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prove.upgrade import library_client
from prove.upgrade.library_client import TOPIC, main
from prove.upgrade.library_load import Line, compare

GOOD: list[Line] = [
    {"published": "a-0", "partition": 1, "offset": 7},
    {"published": "b-0"},
    {"handled": "a-0"},
    {"handled": "b-0"},
    {"handled": "b-0"},
    {"ended": "a"},
]
STORED = [("a-0", 1, 7), ("b-0", 0, 0)]


def test_messages_that_are_stored_once_and_handled_are_right() -> None:
    found = compare(GOOD, STORED)
    assert (found.published, found.handled, found.again, found.wrong) == (2, 2, 1, ())


@pytest.mark.parametrize(
    ("lines", "stored", "wrong"),
    [
        ([*GOOD, {"error": "Conflict()", "value": "c"}], STORED, "a client got an error: Conflict()"),
        (GOOD, [*STORED, ("b-0", 2, 3)], "b-0 is stored 2 times"),
        ([*GOOD, {"published": "c-0"}], STORED, "c-0 was published and is not stored"),
        (GOOD, [("a-0", 1, 8), ("b-0", 0, 0)], "a-0 is not stored at its receipt"),
        (GOOD[:3], STORED, "b-0 is stored and was never handled"),
        ([*GOOD, {"handled": "x"}], STORED, "x was handled and is not stored"),
    ],
)
def test_everything_else_is_wrong(lines: list[Line], stored: list[tuple[str, int, int]], wrong: str) -> None:
    assert compare(lines, stored).wrong == (wrong,)


def test_what_was_wrong_before_is_kept() -> None:
    assert compare([], [], ["old-work-2 ended with 1"]).wrong == ("old-work-2 ended with 1",)


@pytest.mark.parametrize("role", ["publish", "send"])
def test_a_program_that_cannot_publish_says_so(tmp_path: Path, role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic does not exist."""
    monkeypatch.setattr("signal.signal", lambda number, handler: None)
    waits = iter([False, True])
    monkeypatch.setattr(library_client._stopped, "wait", lambda seconds: next(waits))
    main(role, "new-0", str(tmp_path), "memory://")
    lines = [json.loads(line) for line in (tmp_path / "new-0.jsonl").read_text().splitlines()]
    assert any(TOPIC in line.get("error", "") for line in lines)
