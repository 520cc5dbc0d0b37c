"""Reads `docs/reference/documents.md`: the statements of the four reference documents and the evidence of each."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.unit.docs.markdown import ROOT, reference

TEST = re.compile(r"`([\w/]+\.py)::(test_\w+)`")
"""The file and the name of a test."""
_DOCUMENT = re.compile(r"^## (\d+)\. (.+)$")
_SECTION = re.compile(r"^### (\d+\.\d+) (.+)$")
_ROW = re.compile(r"^\| (\d+\.\d+)\.(\d+) \| (.+?) \| (.+) \|$")
_DIFFERENCE = re.compile(r"^\[difference\]\(\.\./differences\.md#different-behaviour\): (.+)$")
_NOT_BUILT = re.compile(r"^\[not built yet\]\(\.\./differences\.md#not-built-yet\): (.+)$")
_NOT_APPLICABLE = re.compile(r"^not applicable: [^.].+\.$")
_MODULE_PARTS = (ast.Assign, ast.AnnAssign, ast.Expr, ast.If)
_SKIPS = {"skip", "skipif", "xfail", "importorskip", "SkipTest"}


@dataclass(frozen=True, kw_only=True)
class Statement:
    """One statement of a document, and where it is shown."""

    section: str
    number: int
    text: str
    shown_by: str

    @property
    def name(self) -> str:
        return f"{self.section}.{self.number}"

    @property
    def tests(self) -> list[tuple[str, str]]:
        """Return the files and names of the tests that show it."""
        return [(match[1], match[2]) for match in TEST.finditer(self.shown_by)]

    @property
    def kind(self) -> str:
        """Return the kind of the evidence; raise ValueError if the text has another form."""
        rest = TEST.sub("", self.shown_by).strip()
        if self.difference is not None:
            return "difference"
        if self.not_built is not None:
            return "not built yet"
        if not self.tests and _NOT_APPLICABLE.match(rest):
            return "not applicable"
        if self.tests and not rest:
            return "test"
        raise ValueError(f"{self.name}: {self.shown_by!r} names no test, no difference and no reason")

    @property
    def difference(self) -> str | None:
        """Return the name of the difference that it is, beside the tests."""
        found = _DIFFERENCE.match(TEST.sub("", self.shown_by).strip())
        return found[1] if found else None

    @property
    def not_built(self) -> str | None:
        """Return the name of the feature that is missing, beside the tests."""
        found = _NOT_BUILT.match(TEST.sub("", self.shown_by).strip())
        return found[1] if found else None


def statements(page: str | None = None) -> list[Statement]:
    """Return all statements, in the order of the page; raise ValueError for a row that cannot be read."""
    found: list[Statement] = []
    document = section = ""
    for line in (reference("documents") if page is None else page).splitlines():
        if match := _DOCUMENT.match(line):
            document, section = match[1], ""
        elif match := _SECTION.match(line):
            section = match[1]
            if section.split(".")[0] != document:
                raise ValueError(f"Section {section} is in document {document}.")
        elif match := _ROW.match(line):
            if match[1] != section:
                raise ValueError(f"Statement {match[1]}.{match[2]} is in section {section}.")
            found.append(Statement(section=section, number=int(match[2]), text=match[3], shown_by=match[4]))
        elif section and line.startswith("|") and not line.startswith(("| no. ", "|---")):
            raise ValueError(f"The row {line!r} is no statement.")
    return found


def file_of(name: str) -> Path:
    """Return the file of a test: below `tests`, and without a folder an acceptance test."""
    return ROOT / "tests" / (name if "/" in name else f"acceptance/{name}")


@functools.cache
def skips_of_tests(path: Path) -> Mapping[str, list[str]]:
    """Return what can skip each test of a file: a mark or a call in the test, or a mark of its module."""
    body = ast.parse(path.read_text()).body
    of_module = [found for node in body if isinstance(node, _MODULE_PARTS) for found in _skips(node)]
    functions = (node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {node.name: of_module + _skips(node) for node in functions}


def _skips(tree: ast.AST) -> list[str]:
    return [found for node in ast.walk(tree) if (found := _skip(node)) is not None]


def _skip(node: ast.AST) -> str | None:
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    if name in _SKIPS and not _is_method(node):
        return name
    return None


def _is_method(node: ast.AST) -> bool:
    """Return whether this is a method of ours with that name, such as `topic.skip`."""
    if not isinstance(node, ast.Attribute):
        return False
    return ast.unparse(node.value) not in ("pytest", "pytest.mark", "unittest", "mark")
