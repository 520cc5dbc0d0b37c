"""Every link leads somewhere, and what ARCHITECTURE.md says about files and symbols is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.unit.docs.markdown import ROOT, anchors, links, section, texts
from tests.unit.docs.symbols import defines, symbol_links

QUESTIONS = (
    "The path of a lease and an ack",
    "Where offsets are allocated",
    "Where a retry is recognised",
    "Shutdown at SIGTERM",
    "Add an operation",
    "Add a storage backend",
)
_PLACE = re.compile(r"`((?:src|tests|scripts|docs|benchmarks|examples)/[\w./-]+)(?::([A-Za-z_][\w.]*))?`")


def architecture() -> str:
    return (ROOT / "ARCHITECTURE.md").read_text()


@pytest.mark.parametrize("path", texts(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_resolve(path: Path) -> None:
    text = path.read_text()
    for link in links(text):
        if "://" in link.target:
            continue
        name, _, fragment = link.target.partition("#")
        target = (path.parent / name).resolve() if name else path
        assert target.exists(), f"{link.target} is not there"
        assert target.is_relative_to(ROOT), f"{link.target} leads out of the project"
        if fragment and target.suffix == ".md":
            assert fragment in anchors(target.read_text()), f"{link.target}: there is no such heading"


@pytest.mark.parametrize("path", texts(), ids=lambda path: str(path.relative_to(ROOT)))
def test_places_exist(path: Path) -> None:
    """`src/lakelog/errors.py`, and `src/lakelog/errors.py:Closed`."""
    for place, symbol in _PLACE.findall(path.read_text()):
        assert (ROOT / place).exists(), f"{place} is not there"
        assert not symbol or defines(ROOT / place, symbol), f"{place} does not define {symbol}"


@pytest.mark.parametrize("path", texts(), ids=lambda path: str(path.relative_to(ROOT)))
def test_linked_symbols_are_defined_where_the_link_leads(path: Path) -> None:
    for symbol, target in symbol_links(path.read_text()):
        file = path.parent / target.partition("#")[0]
        assert file.exists() and defines(file, symbol), f"{target} does not define {symbol}"


@pytest.mark.parametrize("question", QUESTIONS)
def test_architecture_answers_with_links_to_symbols(question: str) -> None:
    answer = section(architecture(), question)
    named = [target for _, target in symbol_links(answer) if target.startswith("src/")]
    assert named, "the answer links no symbol: [`Publisher.messages`](src/lakelog/engine/log/publish.py)"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[`Engine.start`](src/engine.py)", [("Engine.start", "src/engine.py")]),
        ("[`run()`](a.py)", [("run", "a.py")]),
        ("`lakelog.append` in [the migration](a.sql)", [("lakelog.append", "a.sql")]),
        ("[a.py](a.py): `Engine`", [("Engine", "a.py")]),
        ("[`a.py`](a.py), and `Engine`", []),
        ("```\n[`Engine`](a.py)\n```", []),
        ("[`Engine`](a.md)", []),
    ],
)
def test_symbols_are_found_in_links(text: str, found: list[tuple[str, str]]) -> None:
    assert list(symbol_links(text)) == found


def test_definitions_are_found(tmp_path: Path) -> None:
    python, sql = tmp_path / "a.py", tmp_path / "a.sql"
    python.write_text("LIMIT: int = 1\nclass A:\n    async def run(self): ...\ndef make(): ...\n")
    sql.write_text("create function lakelog.append(a int) returns int ...;\n-- read_plan: the head\nselect 1;\n")
    for symbol in ("LIMIT", "A", "A.run", "make"):
        assert defines(python, symbol)
    for symbol in ("run", "A.make", "B", "make.run"):
        assert not defines(python, symbol)
    for symbol in ("append", "lakelog.append", "read_plan"):
        assert defines(sql, symbol)
    for symbol in ("appe", "lakelog.roll", "read"):
        assert not defines(sql, symbol)
