"""Layout of tables: rows of text become lines that fit the width of a terminal. The module prints nothing.

Words are never broken. A table that is too wide is narrowed in three steps: cells of free text are cut, other cells
are wrapped between words, and if that is not enough, each row becomes a block of fields.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from itertools import zip_longest

_WORD = re.compile(r"[^\s`]*`[^`]*`\S*|\S+")
_GAP = 2
_CUT_WIDTH = 12
"""The smallest width to which free text is cut."""
_FIELD_WIDTH = 20
"""The smallest width to which the text of a field is wrapped."""


def lay_out(rows: Sequence[Sequence[str]], room: int | None = None, cut: Collection[int] = ()) -> Iterator[str]:
    """Yield the lines of a table, the first row being its headings.

    Args:
        rows: The cells. All rows have the same number of cells.
        room: How wide a line may be; None leaves every cell whole.
        cut: The columns of free text.
    """
    natural = [max(_width(row[column]) for row in rows) for column in range(len(rows[0]))]
    widths = natural if room is None else _narrowed(rows, natural, room, cut)
    if widths is None:
        yield from _blocks(rows, room)
        return
    for row in rows:
        cells = [
            [_cut(cell, width)] if column in cut else wrap(cell, width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        for parts in zip_longest(*cells, fillvalue=""):
            padded = (part + " " * (width - _width(part)) for part, width in zip(parts, widths, strict=True))
            yield (" " * _GAP).join(padded).rstrip()


def lay_out_fields(fields: Sequence[tuple[str, str]], room: int | None = None) -> Iterator[str]:
    """Yield a line for each name and its text, or several if the text has to be wrapped."""
    indent = max((_width(name) for name, _ in fields), default=0) + _GAP
    for name, text in fields:
        first, *rest = [text] if room is None else wrap(text, max(_FIELD_WIDTH, room - indent))
        yield f"{name}{' ' * (indent - _width(name))}{first}".rstrip()
        for line in rest:
            yield " " * indent + line


def _narrowed(
    rows: Sequence[Sequence[str]], natural: Sequence[int], room: int, cut: Collection[int]
) -> list[int] | None:
    """Return the column widths with which the table fits; None if it fits only by breaking words."""
    lowest = [
        min(width, _CUT_WIDTH) if column in cut else max(_longest_word(row[column]) for row in rows)
        for column, width in enumerate(natural)
    ]
    widths = list(natural)
    excess = sum(natural) + _GAP * (len(natural) - 1) - room
    # Shrink free text first, then the column that can shrink most.
    for column in sorted(range(len(natural)), key=lambda each: (each not in cut, lowest[each] - natural[each])):
        less = max(0, min(excess, natural[column] - lowest[column]))
        widths[column] -= less
        excess -= less
    return widths if excess <= 0 else None


def _blocks(rows: Sequence[Sequence[str]], room: int | None) -> Iterator[str]:
    headings, *others = rows
    for number, row in enumerate(others):
        if number:
            yield ""
        yield from lay_out_fields(list(zip(headings, row, strict=True)), room)


def wrap(text: str, width: int) -> list[str]:
    """Return the text as lines of at most this width, broken between words; a longer word gets its own line.

    A command in backticks stays on one line if it fits, so that it can be copied.
    """
    if _width(text) <= width:
        return [text]
    lines = [""]
    for word in _words(text, width):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if lines[-1] and _width(longer) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def _words(text: str, width: int) -> Iterator[str]:
    for found in _WORD.findall(text):
        yield from [found] if _width(found) <= width else found.split(" ")


def _cut(text: str, width: int) -> str:
    if _width(text) <= width:
        return text
    while _width(text) >= width:
        text = text[: width - 1] if len(text) >= width else text[:-1]
    return text.rstrip() + "…"


def _longest_word(text: str) -> int:
    return max(_width(word) for word in text.split(" "))


def _width(text: str) -> int:
    """Return how many columns a terminal needs for the text."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )
