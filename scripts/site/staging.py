"""Copies the pages of the site into a folder that Zensical builds, with links that work there.

Links between pages stay. A link to a file outside docs/ leads to the page that the site has of it (`PROJECT_PAGES`),
or else to a copy of the file as text. A link to a folder becomes its text, since a static site cannot list a folder.
"""

from __future__ import annotations

import posixpath
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
PROJECT_PAGES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "project/architecture.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "SECURITY.md": "project/security-policy.md",
    "benchmarks/README.md": "project/benchmarks.md",
    "benchmarks/history.md": "project/benchmark-history.md",
}
"""Pages of the site that are not in docs/. The landing page takes the place of the README."""
_OWN_INDEX = "README.md"
_SHOWN = (".svg", ".png", ".md")
"""A browser shows these files. Others get the suffix .txt, so that it does not offer to save them."""
_FENCE = re.compile(r"^ *(?P<marks>```+).*?^ *(?P=marks)$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?P<text>\[[^\]\[]+\])\((?P<target>[^()\s]+)\)")


@dataclass(frozen=True, kw_only=True)
class Page:
    """A page of the navigation: its section (empty for the landing page) and its path in the site's source."""

    section: str
    path: str


def navigation(configuration: str) -> Iterator[Page]:
    """Yield the pages that mkdocs.yml lists, in order."""
    for entry in yaml.load(configuration, _Loader)["nav"]:
        for section, content in entry.items():
            if isinstance(content, str):
                yield Page(section="", path=content)
            else:
                yield from (Page(section=section, path=path) for path in content)


class _Loader(yaml.SafeLoader):
    """Ignores the Python objects that Zensical's configuration may name."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: None)


def stage(folder: Path, root: Path = ROOT) -> None:
    """Copy docs/, the other pages, the linked files and mkdocs.yml into the folder."""
    docs = folder / "docs"
    shutil.rmtree(docs, ignore_errors=True)
    shutil.copytree(root / "docs", docs)
    shutil.copy(root / "mkdocs.yml", folder / "mkdocs.yml")
    pages = {f"docs/{path.relative_to(docs)}": str(path.relative_to(docs)) for path in docs.rglob("*.md")}
    pages |= {path: page for path, page in PROJECT_PAGES.items() if path != _OWN_INDEX}

    def copy(path: str) -> str:
        """Copy a file that is no page, and return its path in the site."""
        place = f"source/{path}" if path.endswith(_SHOWN) else f"source/{path}.txt"
        (docs / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / path, docs / place)
        return place

    for path, page in pages.items():
        target = docs / page
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(rewrite((root / path).read_text(), path, page, root, copy))


def rewrite(markdown: str, path: str, page: str, root: Path, copy: Callable[[str], str]) -> str:
    """Return a page with its links rewritten for the site.

    Args:
        markdown: the page in the repository.
        path: its path in the repository.
        page: its path in the site.
        root: the repository.
        copy: copies a file of the repository into the site and returns its path there.
    """

    def link(match: re.Match[str]) -> str:
        target, hash_mark, fragment = match["target"].partition("#")
        if not target or "://" in target or target.startswith("mailto:"):
            return match[0]
        linked = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        if (root / linked).is_dir():
            return match["text"][1:-1]
        place = _place(linked) or copy(linked)
        relative = posixpath.relpath(place, posixpath.dirname(page) or ".")
        return f"{match['text']}({relative}{hash_mark}{fragment})"

    parts, end = [], 0
    for fence in _FENCE.finditer(markdown):
        parts += [_LINK.sub(link, markdown[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, _LINK.sub(link, markdown[end:])])


def _place(linked: str) -> str | None:
    """Return the place of a file that the site has anyway."""
    return linked.removeprefix("docs/") if linked.startswith("docs/") else PROJECT_PAGES.get(linked)
