"""The README as the description of a package index, where links between files of the repository lead nowhere."""

from __future__ import annotations

import re
from pathlib import Path

from scripts.site.staging import rewrite

_LINK = re.compile(r"(\]\()(?!https?://|#|mailto:)([^)\s]+)(\))")


def site_url(mkdocs: str) -> str:
    """Return the address of the documentation site."""
    match = re.search(r"^site_url: (\S+)$", mkdocs, re.MULTILINE)
    assert match, "mkdocs.yml has a site_url"
    return match[1]


def absolute(readme: str, root: Path, site: str) -> str:
    """Return the README with links to the pages of the documentation site."""

    def address(match: re.Match[str]) -> str:
        path, mark, fragment = match[2].partition("#")
        page = re.sub(r"(^|/)index\.md$", r"\1", path)
        return f"{match[1]}{site}{re.sub(r'[.]md$', '/', page)}{mark}{fragment}{match[3]}"

    rewritten = rewrite(readme, "README.md", "index.md", root, lambda path: _copied(path))
    return _LINK.sub(address, rewritten)


def relative_links(readme: str) -> list[str]:
    """Return the links that are relative."""
    return [match[2] for match in _LINK.finditer(readme)]


def _copied(path: str) -> str:
    """Return where the site has the copy of a file."""
    return f"source/{path}" if path.endswith((".svg", ".png")) else f"source/{path}.txt"
