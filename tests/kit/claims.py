"""Which test runs or compares which code blocks of the pages. `tests/unit/docs/test_fences.py` fails on others.

A new page needs no entry here if its Python runs on its own, one block after another, against an empty installation
(`LAKELOG_URL` is set): test_examples runs it over HTTP, embedded and in memory, and compares what it prints with the
blocks of kind `text`. A page that imports `lakelog.spark` runs in test_spark_pages. Each `lakelog` command in a block
of kind `sh` is parsed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.unit.docs.markdown import DOCS, ROOT, blocks

_WITH_TESTS = DOCS / "howto/test-your-handlers.md"
_QUERY = DOCS / "howto/query-a-topic.md"
_GENERATED = DOCS / "reference/python.md"


def followed_pages() -> list[Path]:
    """Return the pages that a scripted reader follows with the built wheel."""
    return [ROOT / "README.md", *sorted((DOCS / "tutorial").glob("*.md"))]


@functools.cache
def spark_pages() -> list[Path]:
    """Return the how-to pages that need a Spark session."""
    return [page for page in sorted((DOCS / "howto").glob("*.md")) if "from lakelog.spark import" in page.read_text()]


@functools.cache
def python_pages() -> list[Path]:
    """Return all other pages with Python."""
    others = {*followed_pages(), *spark_pages(), _WITH_TESTS, _QUERY, _GENERATED}
    pages = (page for page in sorted(DOCS.rglob("*.md")) if page not in others)
    return [page for page in pages if any(kind == "python" for kind, _ in blocks(page.read_text()))]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A test, and the blocks that it runs or compares: those of some kinds on some pages."""

    test: str
    kinds: frozenset[str]
    pages: Callable[[], Sequence[Path]]


def _on(*names: str) -> Callable[[], Sequence[Path]]:
    return lambda: [DOCS / name for name in names]


CLAIMS = (
    Claim(
        test="tests/acceptance/test_stranger.py", kinds=frozenset(("console", "python", "text")), pages=followed_pages
    ),
    Claim(
        test="tests/acceptance/test_plugin.py",
        kinds=frozenset(("console", "python")),
        pages=_on("howto/test-your-handlers.md"),
    ),
    Claim(test="tests/acceptance/test_examples.py", kinds=frozenset(("python", "text")), pages=python_pages),
    Claim(test="tests/acceptance/test_spark_pages.py", kinds=frozenset(("python",)), pages=spark_pages),
    Claim(
        test="tests/acceptance/test_backup.py", kinds=frozenset(("text",)), pages=_on("howto/back-up-and-restore.md")
    ),
    Claim(
        test="tests/acceptance/test_iceberg.py",
        kinds=frozenset(("python", "text")),
        pages=_on("howto/query-a-topic.md"),
    ),
    Claim(
        test="tests/acceptance/test_examples.py",
        kinds=frozenset(("sql",)),
        pages=_on("howto/publish-in-your-transaction.md", "howto/run-in-production.md"),
    ),
    Claim(test="tests/acceptance/test_examples.py", kinds=frozenset(("sh", "json")), pages=_on("reference/http.md")),
    Claim(
        test="tests/unit/docs/test_python_reference.py", kinds=frozenset(("python",)), pages=_on("reference/python.md")
    ),
    Claim(
        test="tests/unit/cli/topic_files/test_apply.py",
        kinds=frozenset(("console", "yaml")),
        pages=_on("howto/manage-topics-as-files.md"),
    ),
    Claim(test="tests/integration/test_deploy.py", kinds=frozenset(("yaml",)), pages=_on("howto/deploy.md")),
    Claim(test="tests/acceptance/test_mcp.py", kinds=frozenset(("json",)), pages=_on("howto/ask-a-language-model.md")),
    Claim(test="tests/integration/test_doctor.py", kinds=frozenset(("console",)), pages=_on("howto/run-doctor.md")),
)
"""Add an entry when a test of your own runs the blocks of a page."""
