"""What commands print: tables and fields for people, JSON for programs. It decides nothing about what is shown.

Results go to stdout, everything else to stderr. On a terminal tables fit its width; piped they are plain text, and
whole.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def print_json(value: object) -> None:
    """One object or array, indented when a person looks at it."""
    import msgspec

    text = msgspec.json.encode(value)
    if sys.stdout.isatty():
        text = msgspec.json.format(text, indent=2)
    print_line(text.decode())


def print_line(text: str) -> None:
    """One line of a result, out at once: whoever reads the pipe may be waiting for it."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def say(text: str) -> None:
    """Something for the person, not part of the result."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str) -> None:
    """A row per thing; `empty` says on stderr what to do when there is none."""
    cells = [[clean(str(cell)) for cell in row] for row in rows]
    if not cells:
        say(empty)
    elif sys.stdout.isatty():
        _print_rich_table(columns, cells)
    else:
        for line in _aligned([[column.upper() for column in columns], *cells]):
            print_line(line)


def print_fields(fields: Mapping[str, object]) -> None:
    """What is known about one thing."""
    for line in _aligned([[name, clean(str(text))] for name, text in fields.items()]):
        print_line(line)


def clean(text: str) -> str:
    """The text on one line, without signs that could steer a terminal."""
    return text if text.isprintable() else "".join(char if char.isprintable() else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode()


def _aligned(rows: Sequence[Sequence[str]]) -> Iterable[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _print_rich_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table: Any = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column.upper(), overflow="fold")
    for row in rows:
        # Text, so that brackets in a name are not taken for markup.
        table.add_row(*(Text(cell) for cell in row))
    Console(highlight=False).print(table)
