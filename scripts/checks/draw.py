"""Draws random texts for a reader to judge: `scripts/draw --seed N --count 150`.

It draws from docstrings, messages of errors and commands, and sentences of the docs. The same seed draws the same texts
from the same tree.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace

from scripts.checks.texts import Text, all_texts, prose

FOLDERS = ("src", "prove", "docs", "README.md")
GENERATED = "docs/reference/python.md"
"""A page of docstrings, which are drawn where they are written."""
KINDS = ("docstring", "message", "paragraph")
_END = re.compile(r"(?<=[.!?])(?!\*\*)[\"')\]*]*\s+(?=[A-Z`\[*\"])")
"""The end of a sentence. A bold lead-in such as `**Limits.**` belongs to the sentence after it."""


def candidates(texts: Iterable[Text]) -> Iterator[Text]:
    """Yield the texts to draw from: docstrings and messages whole, the docs by sentence."""
    for text in texts:
        if text.path == GENERATED:
            continue
        if text.kind == "paragraph":
            yield from sentences(text)
        elif text.kind == "docstring" or (text.kind == "message" and _is_sentence(text.text)):
            yield text


def sentences(text: Text) -> Iterator[Text]:
    """Yield each sentence of a paragraph with its own line."""
    start = 0
    for end in [*(match.end() for match in _END.finditer(prose(text.text))), len(text.text)]:
        line = text.line + text.text.count("\n", 0, start)
        yield replace(text, line=line, text=text.text[start:end].strip())
        start = end


def _is_sentence(message: str) -> bool:
    """Return whether a string is one that people read, not a key or a query."""
    return len(message.split()) >= 4 and (message[:1].isupper() or message.rstrip().endswith((".", "?", "!")))


def draw(texts: Iterable[Text], seed: int, count: int) -> list[Text]:
    """Return random texts, in the order of their places."""
    everything = list(candidates(texts))
    chosen = random.Random(seed).sample(everything, min(count, len(everything)))
    return sorted(chosen, key=lambda text: (text.path, text.line))


def main(arguments: list[str]) -> int:
    """Print the drawn texts."""
    parser = argparse.ArgumentParser(prog="scripts/draw", description="Draw random texts for a reader to judge.")
    parser.add_argument("--seed", type=int, required=True, help="the same seed draws the same texts")
    parser.add_argument("--count", type=int, default=150, help="how many texts to draw; 150 by default")
    parser.add_argument("folders", nargs="*", default=FOLDERS, help="folders and files to draw from")
    options = parser.parse_args(arguments)
    for number, text in enumerate(draw(all_texts(options.folders), options.seed, options.count), 1):
        print(f"{number}. {text.place()} ({text.kind})")
        print("   " + text.text.strip().replace("\n", "\n   "), end="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
