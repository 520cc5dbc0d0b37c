"""Rules for all files: no path of a machine, no registry, sizes, docstrings, words."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.unit.docs.markdown import ROOT, links, section, table, texts

MAX_LINES = 700
EXPLAIN_LINES = 400
DUMPED = {"src/lakelog/storage/postgres/schema.sql"}
"""Generated from the migrations by a test, so it cannot be split."""
_FOREIGN = re.compile(r"(?<![\w.~-])/(?:work|root)/|pypi\.org|files\.pythonhosted|repo1\.maven")
_ROOMS = ("src", "tests", "docs", "scripts", "benchmarks", "examples", ".ci")
_SKIPPED = ("__pycache__", ".egg-info")


def files() -> list[Path]:
    # In a linked worktree, .git is a file that holds a path of the machine.
    top = [path for path in ROOT.iterdir() if path.is_file() and path.name != ".git"]
    inner = [path for room in _ROOMS for path in (ROOT / room).rglob("*") if path.is_file()]
    return sorted(path for path in top + inner if not any(name in str(path) for name in _SKIPPED))


def sources(*suffixes: str) -> list[Path]:
    return [path for path in files() if path.is_relative_to(ROOT / "src") and path.suffix in suffixes]


def test_no_file_names_a_machine_or_a_registry() -> None:
    found = []
    for path in files():
        text = path.read_bytes().decode(errors="replace")
        found += [f"{path.relative_to(ROOT)}: {match[0]}" for match in _FOREIGN.finditer(text)]
    assert found == []


def test_what_is_foreign_is_recognised() -> None:
    slash, dot = "/", "."
    for text in (f"see {slash}work/main", f"'{slash}root/x'", f"https://pypi{dot}org/simple", f"repo1{dot}maven"):
        assert _FOREIGN.search(text), text
    for text in ("the /workers/ path", f"home{slash}work/b", f".{slash}work/b", "pypi"):
        assert not _FOREIGN.search(text), text


def test_files_are_short_or_explained() -> None:
    lines = {str(path.relative_to(ROOT)): path.read_text().count("\n") for path in sources(".py", ".sql")}
    assert {name: count for name, count in lines.items() if count > MAX_LINES and name not in DUMPED} == {}
    rows = table(section((ROOT / "CONTRIBUTING.md").read_text(), "Files over 400 lines"), "file")
    explained = {link.target for row in rows for link in links(row[0])}
    assert explained == {name for name, count in lines.items() if count > EXPLAIN_LINES}
    assert all(row[1].endswith(".") for row in rows)


@pytest.mark.parametrize("path", sources(".py"), ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_a_module_says_what_it_is_for(path: Path) -> None:
    text = ast.get_docstring(ast.parse(path.read_text()))
    assert text and len(text.split()) >= 3


def test_texts_use_our_words() -> None:
    avoided = re.compile(r"visibility timeout|poison|requeue", re.IGNORECASE)
    found = [str(path.relative_to(ROOT)) for path in texts() if avoided.search(path.read_text())]
    assert found == ["docs/glossary.md"], "these are named only where they are ruled out"


def test_each_migration_has_its_own_number() -> None:
    names = [path.name for path in (ROOT / "src/lakelog/storage/postgres/migrations").glob("*.sql")]
    assert sorted(int(name[:4]) for name in names) == list(range(1, len(names) + 1)), sorted(names)
