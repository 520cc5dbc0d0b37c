"""Drawing texts for a reader: what is drawn from, and that a seed repeats."""

from __future__ import annotations

import pytest

from scripts.checks import draw
from scripts.checks.texts import Text


def text(kind: str, content: str, line: int = 1) -> Text:
    return Text(path="a", line=line, kind=kind, text=content)


def test_docs_are_drawn_by_sentence_with_their_lines() -> None:
    paragraph = text("paragraph", "The first. The\nsecond, e.g. `a. B`.\nThe third", 7)
    assert [(one.line, one.text) for one in draw.candidates([paragraph])] == [
        (7, "The first."),
        (7, "The\nsecond, e.g. `a. B`."),
        (9, "The third"),
    ]


def test_a_bold_lead_in_is_drawn_with_its_sentence() -> None:
    paragraph = text("paragraph", "**Limits.** A body has 8 MiB. A key has 1 KiB.")
    assert [one.text for one in draw.candidates([paragraph])] == ["**Limits.** A body has 8 MiB.", "A key has 1 KiB."]


def test_messages_are_drawn_only_if_people_read_them() -> None:
    kept = [text("message", "Topic {} does not exist."), text("docstring", "Short.")]
    left = [text("message", "select a from b"), text("message", "two words"), text("heading", "A heading it is")]
    assert list(draw.candidates([*kept, *left])) == kept


def test_a_seed_draws_the_same_texts() -> None:
    everything = [text("docstring", str(number), number) for number in range(100)]
    assert draw.draw(everything, 1, 10) == draw.draw(everything, 1, 10)
    assert draw.draw(everything, 1, 10) != draw.draw(everything, 2, 10)
    assert len({one.line for one in draw.draw(everything, 1, 10)}) == 10


def test_the_command_prints_places_and_texts(capsys: pytest.CaptureFixture[str]) -> None:
    assert draw.main(["--seed", "1", "--count", "3", "scripts/checks/draw.py"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("scripts/checks/draw.py:") == 3
