"""Just enough of Markdown to compare our texts with the code: tables, headings, links, code blocks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"

_HEADING = re.compile(r"^(#+) (.+)$", re.MULTILINE)
_FENCE = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^\n]+?) -->\n)?```(?P<kind>\w*)(?P<info>[^\n]*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_LINK = re.compile(r"\[([^\]\[]+)\]\(([^()\s]+)\)")
_RULE = re.compile(r"^\|[-| :]+\|$")


@dataclass(frozen=True, kw_only=True)
class Link:
    """A link and its position in the text."""

    text: str
    target: str
    start: int
    end: int


@dataclass(frozen=True, kw_only=True)
class Fence:
    """A code block. `reason` says why no test runs it: `<!-- not run: REASON -->` on the line above."""

    kind: str
    text: str
    line: int
    reason: str | None


def reference(name: str) -> str:
    return (DOCS / "reference" / f"{name}.md").read_text()


def texts() -> list[Path]:
    """Every Markdown file of the project."""
    rooms = ("docs", "benchmarks", "examples", "tests", "src")
    return sorted([*ROOT.glob("*.md"), *(path for room in rooms for path in (ROOT / room).rglob("*.md"))])


def section(text: str, heading: str) -> str:
    """Return the text below a heading, up to the next heading of the same or a higher level."""
    for match in _HEADING.finditer(text):
        if match[2].strip() == heading:
            level = len(match[1])
            following = (m.start() for m in _HEADING.finditer(text, match.end()) if len(m[1]) <= level)
            return text[match.end() : next(following, len(text))]
    raise AssertionError(f"there is no heading {heading!r}")


def table(text: str, first_column: str) -> list[list[str]]:
    """The rows of the table whose first column has that name."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if line.startswith("|") and _cells(line)[0] == first_column and _RULE.match(lines[number + 1]):
            rows = []
            for row in lines[number + 2 :]:
                if not row.startswith("|"):
                    break
                rows.append(_cells(row))
            return rows
    raise AssertionError(f"there is no table that begins with a column {first_column!r}")


def code(cell: str) -> str:
    """Return the content of a cell that is one code span."""
    assert re.fullmatch(r"`[^`]+`", cell), f"{cell!r} is not one code span"
    return cell[1:-1]


def links(text: str) -> Iterator[Link]:
    """All links outside of code blocks."""
    bare = _FENCE.sub(lambda match: " " * len(match[0]), text)
    for match in _LINK.finditer(bare):
        yield Link(text=match[1], target=match[2], start=match.start(), end=match.end())


def prose(text: str) -> str:
    """Return the text without its code blocks."""
    return _FENCE.sub("", text)


def fences(text: str) -> list[Fence]:
    """Return all code blocks in order."""
    return [
        Fence(
            kind=match["kind"],
            text=match["text"],
            line=text.count("\n", 0, match.start("kind")) + 1,
            reason=match["reason"],
        )
        for match in _FENCE.finditer(text)
    ]


def blocks(text: str) -> list[tuple[str, str]]:
    """Return the kind and the content of each code block that a test runs or compares."""
    return [(fence.kind, fence.text) for fence in fences(text) if fence.reason is None]


def anchors(text: str) -> set[str]:
    """The fragments that lead to headings, as GitHub makes them."""
    titles = (match[2].strip().lower() for match in _HEADING.finditer(prose(text)))
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles}


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]
