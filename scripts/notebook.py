"""Makes the notebook of the tutorial from its page; `--check` fails if they differ.

A Python block becomes a cell, with the output that the page shows. So does a command, unless it is one that a reader
leaves running in a terminal of its own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.kit.pages import Block, read_blocks

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/tutorial/a-topic-is-a-table.md"
NOTEBOOK = PAGE.with_suffix(".ipynb")
_TERMINAL = ("pip ", "lakelog dev")
_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def notebook(markdown: str) -> str:
    """Return the notebook of a page as JSON."""
    cells = [{"id": f"cell-{number}", **cell} for number, cell in enumerate(_cells(markdown))]
    made = {"cells": cells, "metadata": _METADATA, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(made, indent=1, ensure_ascii=False) + "\n"


def _cells(markdown: str) -> Iterator[dict[str, Any]]:
    lines = markdown.splitlines(keepends=True)
    text: list[str] = []
    at = 0
    for block in read_blocks(markdown):
        text += lines[at : block.line - 1]
        at = _end(lines, block)
        code = _code(block)
        if code is None:
            text += lines[block.line - 1 : at]
            continue
        if "".join(text).strip():
            yield _cell("markdown", "".join(text))
        text = []
        yield {**_cell("code", code), "execution_count": None, "outputs": _outputs(block)}
    if rest := "".join([*text, *lines[at:]]).strip():
        yield _cell("markdown", rest)


def _end(lines: list[str], block: Block) -> int:
    """Return the line after the block, and after the block of its output."""
    fences = [number for number, line in enumerate(lines) if line.startswith("```") and number >= block.line]
    return fences[2 if block.kind == "python" and block.output else 0] + 1


def _code(block: Block) -> str | None:
    if block.kind == "python":
        return block.text
    if any(command.text.startswith(_TERMINAL) for command in block.commands):
        return None
    return "\n".join(f"!{command.text}" for command in block.commands)


def _outputs(block: Block) -> list[dict[str, Any]]:
    text = block.output or "".join(f"{command.output}\n" for command in block.commands)
    return [{"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)}] if text else []


def _cell(kind: str, text: str) -> dict[str, Any]:
    return {"cell_type": kind, "metadata": {}, "source": text.strip("\n").splitlines(keepends=True)}


def main() -> int:
    """Write the notebook, or compare it with `--check`."""
    made = notebook(PAGE.read_text())
    if NOTEBOOK.exists() and NOTEBOOK.read_text() == made:
        return 0
    if "--check" in sys.argv:
        print(f"{NOTEBOOK.relative_to(ROOT)} is out of date. Run `python -m scripts.notebook`.", file=sys.stderr)
        return 1
    NOTEBOOK.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
