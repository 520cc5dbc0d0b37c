"""The text forms of the site for language models: each page as Markdown, llms.txt and llms-full.txt."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from scripts.site.staging import Page

_COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)
_LINK = re.compile(r"\[([^\]\[]+)\]\([^()\s]+\)")
_FRONT = re.compile(r"\A---\n.*?^---\n", re.DOTALL | re.MULTILINE)


def write(docs: Path, public: Path, pages: Sequence[Page]) -> None:
    """Write the files next to the rendered pages. `docs` has the staged pages, `public` is the site."""
    texts = {page.path: _FRONT.sub("", _COMMENT.sub("", (docs / page.path).read_text())).strip() for page in pages}
    for path, text in texts.items():
        (public / path).write_text(text + "\n")
    home = pages[0].path
    lines = [f"# {title(texts[home])}", "", f"> {summary(texts[home])}"]
    for section, group in groupby(pages[1:], key=lambda page: page.section):
        lines += ["", f"## {section}", ""]
        lines += [f"- [{title(texts[page.path])}]({page.path}): {summary(texts[page.path])}" for page in group]
    (public / "llms.txt").write_text("\n".join(lines) + "\n")
    full = [f"<!-- {page.path} -->\n\n{texts[page.path]}\n" for page in pages]
    (public / "llms-full.txt").write_text("\n".join(full))


def title(markdown: str) -> str:
    """Return the text of the first heading."""
    found = re.search(r"^# (.+)$", markdown, re.MULTILINE)
    assert found, f"a page begins with a heading of level 1, and this one with {markdown[:60]!r}"
    return found[1]


def summary(markdown: str) -> str:
    """Return the first sentence of the first paragraph, without links."""
    paragraphs = [each for each in markdown.split("\n\n") if re.match(r"[A-Za-z`\[*]", each)]
    text = _LINK.sub(r"\1", " ".join(paragraphs[0].split())) if paragraphs else ""
    return re.split(r"(?<=[.:])\s", text, maxsplit=1)[0].rstrip(":")
