"""Each statement of the four reference documents is shown by a test that runs, or says why it is not."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.unit.docs.markdown import DOCS, reference, table
from tests.unit.docs.statements import file_of, skips_of_tests, statements

COUNTS = {
    "1": [4, 4, 4, 4, 3, 5, 3, 4, 3],
    "2": [8, 3, 10, 12, 10, 6, 14, 7, 8, 9, 8],
    "3": [6, 7, 12, 6, 5, 5, 6, 7, 9, 5, 5, 6, 8, 8, 13, 11, 12, 8],
    "4": [2, 3, 7, 2, 7, 6, 9, 2, 3, 4, 4, 2, 10, 11, 11],
}
"""The statements in each section of the documents, counted in the documents themselves."""


@pytest.mark.parametrize("document", COUNTS)
def test_every_statement_of_a_document_is_listed(document: str) -> None:
    numbers: dict[str, list[int]] = {}
    for each in statements():
        if each.section.startswith(f"{document}."):
            numbers.setdefault(each.section, []).append(each.number)
    expected = {f"{document}.{n}": list(range(1, count + 1)) for n, count in enumerate(COUNTS[document], start=1)}
    assert numbers == expected


def test_every_test_exists_and_runs() -> None:
    wrong = []
    for each in statements():
        for file, test in each.tests:
            path = file_of(file)
            tests = skips_of_tests(path) if path.exists() else {}
            if test not in tests:
                wrong.append(f"{each.name}: {file}::{test} does not exist")
            elif tests[test]:
                wrong.append(f"{each.name}: {file}::{test} may be skipped: {tests[test]}")
    assert wrong == []


def test_every_statement_has_evidence_or_a_reason() -> None:
    assert {each.kind for each in statements()} <= {"test", "difference", "not applicable", "not built yet"}


def test_differences_are_rows_of_their_page() -> None:
    page = (DOCS / "differences.md").read_text()
    rows = {row[0] for row in table(page, "what")}
    named = {each.difference for each in statements()} - {None}
    assert named <= rows
    assert {each.not_built for each in statements()} == {None}, "differences.md has no table of missing features"
    if len(COUNTS) == 4:
        assert named == rows


def test_the_counts_at_the_top() -> None:
    counted: dict[str, Counter[str]] = {}
    for each in statements():
        counted.setdefault(each.section.split(".")[0], Counter())[each.kind] += 1
    documented = {}
    for row in table(reference("documents"), "document"):
        documented[row[0].split(".")[0]] = [int(cell) for cell in row[1:]]
    kinds = ("test", "difference", "not applicable", "not built yet")
    assert documented == {
        document: [counts.total(), *(counts[kind] for kind in kinds)] for document, counts in counted.items()
    }


def test_every_test_of_the_documents_is_named() -> None:
    named = {test for each in statements() for test in each.tests}
    left_out = []
    for number, name in enumerate(("driftq", "goqueue", "oqronkit", "seastreamer"), start=1):
        for path in sorted(file_of("x.py").parent.glob(f"test_document_{name}*.py")) if str(number) in COUNTS else []:
            tests = re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE)
            left_out += [f"{path.name}::{test}" for test in tests if (path.name, test) not in named]
    assert left_out == []


# The checker ----------------------------------------------------------------------------------------------------------

_PAGE = "## 1. A\n\n### 1.1 B\n\n| no. | statement | shown by |\n|---|---|---|\n"


@pytest.mark.parametrize(
    ("shown_by", "kind"),
    [
        ("`test_x.py::test_a`", "test"),
        ("`test_x.py::test_a` `unit/docs/test_y.py::test_b`", "test"),
        ("not applicable: advice to programmers.", "not applicable"),
        ("[difference](../differences.md#different-behaviour): latest offset", "difference"),
        ("`test_x.py::test_a` [difference](../differences.md#different-behaviour): latest offset", "difference"),
        ("[not built yet](../differences.md#not-built-yet): lag", "not built yet"),
    ],
)
def test_evidence_is_recognised(shown_by: str, kind: str) -> None:
    (statement,) = statements(f"{_PAGE}| 1.1.1 | It is so. | {shown_by} |\n")
    assert statement.kind == kind


@pytest.mark.parametrize("shown_by", ["", "not applicable:", "by hand", "`test_x.py`", "`test_x.py::test_a` later"])
def test_other_evidence_is_refused(shown_by: str) -> None:
    with pytest.raises(ValueError, match=r"1\.1\.1"):
        _ = [each.kind for each in statements(f"{_PAGE}| 1.1.1 | It is so. | {shown_by} |\n")]


@pytest.mark.parametrize("row", ["| 1.2.1 | It is so. | by hand |", "| 2.1.1 | It is so. | x |", "| so | it | is |"])
def test_a_row_in_the_wrong_place_is_refused(row: str) -> None:
    with pytest.raises(ValueError, match=r"row|section"):
        statements(f"{_PAGE}{row}\n")


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("def test_a(): topic.skip('g')", []),
        ("@pytest.mark.skip\ndef test_a(): ...", ["skip"]),
        ("@pytest.mark.skipif(True, reason='x')\nasync def test_a(): ...", ["skipif"]),
        ("@pytest.mark.parametrize('n', [pytest.param(1, marks=pytest.mark.xfail)])\ndef test_a(n): ...", ["xfail"]),
        ("def test_a():\n    if True:\n        pytest.skip('x')", ["skip"]),
        ("pytestmark = pytest.mark.skip\ndef test_a(): ...", ["skip"]),
        ("pytest.importorskip('x')\ndef test_a(): ...", ["importorskip"]),
        ("@pytest.mark.skip\ndef test_b(): ...\ndef test_a(): ...", []),
    ],
)
def test_skips_are_found(tmp_path: Path, source: str, found: list[str]) -> None:
    path = tmp_path / "test_x.py"
    path.write_text(source)
    assert skips_of_tests(path)["test_a"] == found
