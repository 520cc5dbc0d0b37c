"""Fails on words that our texts avoid: `python -m scripts.checks.words [FOLDER ...]`.

Plain technical English names the subject of each sentence and uses the words that people search for. The list holds
what a program can recognise; a reader has to judge the rest.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator

from scripts.checks.texts import Text, all_texts, prose

FOLDERS = (
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "src",
    "docs",
    "prove",
    "benchmarks",
    "scripts",
    "examples",
    ".ci",
)
"""Checked without arguments."""
_OWN = "scripts/checks/words.py"
_AVOIDED = [
    re.compile(pattern.replace(" ", r"\s+"), re.IGNORECASE)
    for pattern in (
        r"\b(whoever|whomever|somebody|nobody|everybody|anybody)\b",
        r"\bso (long|many)\b",
        r"(?<!soon\s)(?<!long\s)(?<!far\s)\bas it is\b",
        r"\banew\b",
        r"\bmeanwhile\b",
        r"\bstands\b",
        r"\bis over\b",
        r"\b(is|are) told\b",
        r"\bhears? of\b",
        r"\bin hand\b",
        r"\bof ((?!(if|when|where|that|which|and|because)\b)\S+ ){1,3}there (is|are)\b",
    )
]
_START = re.compile(r"(?:^|[.!?:][\"')\]*]*\s+)((?:Of|What|Whom|That)\b[^\n]{0,25})")


def findings(text: Text) -> Iterator[tuple[str, str]]:
    """Yield the place and the words of each finding in a text."""
    plain = prose(text.text)
    for pattern in _AVOIDED:
        for match in pattern.finditer(plain):
            yield text.place(match.start()), " ".join(match[0].split())
    for match in _START.finditer(plain):
        yield text.place(match.start(1)), f"a sentence that begins with {match[1]!r}"
    if text.kind == "heading" and plain.rstrip().endswith("?"):
        yield text.place(), f"a question as a heading: {plain!r}"


def main(folders: list[str]) -> int:
    """Print every finding, and fail if there is one."""
    found: Counter[str] = Counter()
    for text in all_texts(folders or FOLDERS):
        if text.path == _OWN:
            continue
        for place, words in findings(text):
            found[text.path.partition("/")[0]] += 1
            print(f"{place}: avoid {words}")
    if found:
        print("words: " + ", ".join(f"{name} {count}" for name, count in sorted(found.items())))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
