"""Words that texts avoid: each is found with its place, and plain English passes."""

from __future__ import annotations

import pytest

from scripts.checks.texts import Text
from scripts.checks.words import findings


def found(text: str, kind: str = "docstring") -> list[str]:
    return [words for _, words in findings(Text(path="a.py", line=1, kind=kind, text=text))]


@pytest.mark.parametrize(
    "text",
    [
        "Whoever asks gets it.",
        "There is nobody else.",
        "Wait so\nlong for it.",
        "There are so many of them.",
        "Leave it as it is.",
        "Begin anew.",
        "It ended meanwhile.",
        "It stands in the catalog.",
        "The lease is over.",
        "The caller is told.",
        "The server hears of it.",
        "As much as it has in hand.",
        "Of such rows there are none here.",
        "Of these, one wins.",
        "What the caller said.",
        "It is done. That is enough.",
        "Done: What follows is next.",
        "Whom it helps",
    ],
)
def test_avoided_words_are_found(text: str) -> None:
    assert found(text)


@pytest.mark.parametrize(
    "text",
    [
        "Return what the caller sent.",
        "The value of this field is the offset that comes next.",
        "Understands standstill, handover, in handlers and renewal.",
        "As long as the lease is held, the server extends it.",
        "The client retries as soon as it is connected.",
        "Return the number of ranges if there are several.",
        "Call `Nobody` or `what stands`.",
        "Often, whatever happens, thatch holds.",
    ],
)
def test_plain_english_passes(text: str) -> None:
    assert found(text) == []


def test_a_question_is_no_heading() -> None:
    assert found("Which one is right?", "heading")
    assert not found("Which one is right?", "paragraph")
    assert not found("When to use it", "heading")


def test_a_finding_has_its_line() -> None:
    text = Text(path="docs/a.md", line=10, kind="paragraph", text="First line,\nthen nobody.\nOf the third.")
    assert [place for place, _ in findings(text)] == ["docs/a.md:11", "docs/a.md:12"]
