"""Checks the rendered site: each link and image leads to a file, and each fragment to an element of its page.

Zensical checks links between Markdown pages. This check sees the HTML, so it also covers the theme and copied files.
"""

from __future__ import annotations

import functools
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

_TARGET = re.compile(r'<(?:a|img|link|script)\b[^>]*?\b(?:href|src)="?([^"\s>]*)')
_ID = re.compile(r'\bid="?([^"\s>]+)')
_FOREIGN = re.compile(r"[a-z]+:|//")


def broken(public: Path) -> Iterator[str]:
    """Yield the broken links of the site as `page: target`."""
    for page in sorted(public.rglob("*.html")):
        if page.name == "404.html":
            continue  # its links are absolute, for any place that the site is served from
        name = page.relative_to(public).as_posix()
        for target in sorted(set(_TARGET.findall(page.read_text()))):
            if not _FOREIGN.match(target) and not _leads_somewhere(public, name, target):
                yield f"{name}: {target}"


def _leads_somewhere(public: Path, page: str, target: str) -> bool:
    parts = urlsplit(target)
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), unquote(parts.path))) if parts.path else page
    file = public / path
    if file.is_dir():
        file /= "index.html"
    if not file.is_file():
        return False
    if not parts.fragment or file.suffix != ".html":
        return True
    return unquote(parts.fragment) in _ids(file)


@functools.cache
def _ids(page: Path) -> frozenset[str]:
    return frozenset(_ID.findall(page.read_text()))
