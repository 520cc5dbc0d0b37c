"""Output of commands: tables, fields and questions for people, JSON for programs. The commands choose the content.

Results go to stdout, everything else to stderr. On a terminal, tables fit its width; in a pipe they are whole.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Annotated

import typer

from lakelog.cli import tables

PREFIX = "lakelog: "
"""Prefix of messages on stderr."""


def print_json(value: object) -> None:
    """Print one object or array; indented on a terminal."""
    import msgspec

    text = msgspec.json.encode(value)
    if is_watched():
        text = msgspec.json.format(text, indent=2)
    print_line(text.decode())


def print_line(text: str) -> None:
    """Print one line of a result and flush it: the reader of a pipe may be waiting for it."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def print_result(json: bool, value: object, text: str) -> None:
    """Print the value as JSON, or as the given line of text."""
    if json:
        print_json(value)
    else:
        print_line(text)


def say(text: str) -> None:
    """Print a message that is not part of the result on stderr; on a terminal, wrap it between words."""
    if sys.stderr.isatty():
        text = "\n".join(part for line in text.splitlines() for part in _within(line, _columns()))
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str, cut: Collection[str] = ()
) -> None:
    """Print a table.

    Args:
        columns: The headings.
        rows: The cells of each row.
        empty: The message on stderr if there are no rows.
        cut: The columns of free text, which may be cut to fit a terminal.
    """
    cells = [[clean(str(cell)) for cell in row] for row in rows]
    if not cells:
        say(empty)
        return
    free = {number for number, column in enumerate(columns) if column in cut}
    for line in tables.lay_out([[column.upper() for column in columns], *cells], _room(), free):
        print_line(line)


def print_fields(fields: Mapping[str, object]) -> None:
    """Print names and values, one per line."""
    print_pairs([(name, str(text)) for name, text in fields.items()])


def print_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Print two columns. On a terminal, the second one is wrapped between words."""
    shown = [(clean(first), clean(second)) for first, second in pairs]
    for line in tables.lay_out_fields(shown, _room()):
        print_line(line)


def clean(text: str) -> str:
    """Return the text on one line, with control characters escaped, because they could control the terminal."""
    return text if text.isprintable() else "".join(char if char.isprintable() else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode()


def is_watched() -> bool:
    """Return whether results go to a terminal, where a person reads them."""
    return sys.stdout.isatty()


def _room() -> int | None:
    """Return the width of the terminal; None in a pipe, whose reader gets everything."""
    return _columns() if is_watched() else None


def _columns() -> int:
    return shutil.get_terminal_size().columns


def _within(line: str, width: int) -> Iterable[str]:
    """Yield the line in parts of this width; parts after the first are indented to the start of the text."""
    start = len(line) - len(line.lstrip(" ")) or len(PREFIX) * line.startswith(PREFIX)
    first, *rest = tables.wrap(line[start:], width - start)
    yield line[:start] + first
    for part in rest:
        yield " " * start + part


YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def confirm(question: str) -> None:
    """Ask for confirmation, and exit unless the answer is yes. Without a terminal, exit with a hint to use --yes."""
    if not sys.stdin.isatty():
        say("lakelog: This command asks for confirmation, and there is no terminal. Give --yes to run it anyway.")
        raise typer.Exit(2)
    if not typer.confirm(question, err=True):
        say("Nothing was changed.")
        raise typer.Exit(1)
