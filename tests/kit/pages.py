"""A Markdown page as a reader follows it: blocks to run, in order, each with the output that the page shows for it.

- `console`: each line that begins with `$ ` is a command, and the lines below it are its output. A line that ends with
  a backslash continues. A line `^C` means that the reader presses Ctrl-C there.
- `python`: code; with `title="app.py"`, a file to save.
- `text`: the output of the Python block above it.

No other kind of block may appear on the page, so that every block runs. In an output, `…` matches any text, and on a
line of its own for any lines. Times, durations, ages, sizes and random ids are compared by their shape.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

INTERRUPT = "^C"
_FENCE = re.compile(r"^(?P<marks>```+)(?P<kind>[^\s`]*)(?P<info>[^\n]*)\n(?P<text>.*?)^(?P=marks)$", re.M | re.S)
WAITING = re.compile(r"^(?:Waiting for .* Ctrl-C to stop|Connected again after .*)\.\n", re.MULTILINE)
"""Lines that the CLI adds if a server does not respond quickly."""
_TITLE = re.compile(r'title="([^"]+)"')

_SHAPES = (
    (WAITING, ""),
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|\+00:00)?"), "TIME"),
    (re.compile(r"\b\d\d:\d\d:\d\d\b"), "TIME"),
    (re.compile(r"\blkl_[\w-]+"), "TOKEN"),
    (re.compile(r"\b[0-9a-f]{8,}\b"), "HEX"),
    (re.compile(r"\b(?:\d+[hm])?\d+(?:\.\d+)? ?(?:ms|s|m|h)\b(?: ago)?"), "DURATION"),
    (re.compile(r"\b[\d,.]+/s\b"), "RATE"),
    # The size of a segment depends on how well its timestamps compress.
    (re.compile(r"\b[\d,.]+ (?:B|KiB|MiB|GiB)\b"), "SIZE"),
    (re.compile(r"\b127\.0\.0\.1:\d+"), "ADDRESS"),
)


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command that a reader types at a prompt, and the output that the page shows below it."""

    line: int
    text: str
    output: str


@dataclass(frozen=True, kw_only=True)
class Block:
    """A block that runs. `commands` for a console; `output` for Python; `title` names a file to save."""

    kind: str
    line: int
    text: str
    title: str | None = None
    output: str = ""
    commands: tuple[Command, ...] = field(default=())


def read_blocks(markdown: str) -> list[Block]:
    """Return the blocks of a page in order. Raise if a block would not run."""
    found: list[Block] = []
    for match in _FENCE.finditer(markdown):
        line = markdown.count("\n", 0, match.start()) + 1
        kind, text = match["kind"], match["text"]
        title = _TITLE.search(match["info"])
        if kind == "console":
            found.append(Block(kind=kind, line=line, text=text, commands=tuple(_commands(text, line))))
        elif kind == "python":
            found.append(Block(kind=kind, line=line, text=text, title=title[1] if title else None))
        elif kind == "text" and found and found[-1].kind == "python" and not found[-1].output:
            found[-1] = replace(found[-1], output=text)
        else:
            raise AssertionError(f"line {line}: no rule runs a block of kind {kind!r} here; use console or python")
    fences = sum(line.lstrip().startswith("```") for line in markdown.splitlines())
    shown = sum(1 for block in found if block.kind == "python" and block.output)
    assert fences == 2 * (len(found) + shown), (
        "a fence of the page is indented or not closed, so its block does not run"
    )
    return found


def _commands(text: str, line: int) -> Iterator[Command]:
    lines = text.splitlines()
    assert lines and lines[0].startswith("$ "), f"line {line}: a console block begins with `$ ` and a command"
    at = 0
    while at < len(lines):
        start, command = at, lines[at].removeprefix("$ ")
        while lines[at].endswith("\\"):
            at += 1
            command += "\n" + lines[at]
        at += 1
        first = at
        while at < len(lines) and not lines[at].startswith("$ "):
            at += 1
        yield Command(line=line + 1 + start, text=command, output="\n".join(lines[first:at]))


def matches(expected: str, printed: str) -> bool:
    """Return whether the output matches the page."""
    lines = _shaped(expected).split("\n")
    pattern = "".join(r"(?:.*\n)*?" if line == "…" else _line_pattern(line) + r"\n" for line in lines)
    return re.fullmatch(pattern, _shaped(printed) + "\n") is not None


def _line_pattern(line: str) -> str:
    return ".*".join(map(re.escape, line.split("…")))


def _shaped(text: str) -> str:
    """Return the text without trailing spaces, and with the parts that differ between runs replaced by their kind."""
    # A terminal shows Ctrl-C at the cursor, and the next output of the program on the same line.
    text = text.replace(INTERRUPT, f"{INTERRUPT}\n").replace(f"{INTERRUPT}\n\n", f"{INTERRUPT}\n")
    for pattern, kind in _SHAPES:
        text = pattern.sub(kind, text)
    # Columns are as wide as their widest cell, which may be one of those parts.
    return "\n".join(re.sub(r" {2,}", "  ", line).rstrip() for line in text.strip("\n").split("\n"))
