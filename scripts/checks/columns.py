"""Fails on Markdown lines over 100 columns: `python -m scripts.checks.columns [FOLDER ...]`.

Tables, code blocks, lines with a URL, and lines that are a single word or link cannot be wrapped and are excepted.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

from scripts.checks.texts import ROOT, tracked_files

MOST = 100
_FENCE = re.compile(r"^\s*(```|~~~)")
_MARKER = re.compile(r"^\s*(?:[-*>]|\d+\.)?\s*")


def long_lines(content: str) -> Iterator[tuple[int, int]]:
    """Yield the number and the width of each line that has to be wrapped."""
    is_code = False
    for number, line in enumerate(content.splitlines(), 1):
        if _FENCE.match(line):
            is_code = not is_code
        elif not is_code and len(line) > MOST and not _is_excepted(line):
            yield number, len(line)


def _is_excepted(line: str) -> bool:
    return line.startswith("|") or "://" in line or " " not in _MARKER.sub("", line).strip()


def main(folders: list[str]) -> int:
    """Print every line that is too long, and fail if there is one."""
    failed = False
    for path in tracked_files(folders):
        if path.endswith(".md"):
            for number, width in long_lines((ROOT / path).read_text()):
                failed = True
                print(f"{path}:{number}: {width} columns, at most {MOST}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
