"""Each difference that the texts name is shown by a test that exists."""

from __future__ import annotations

import pytest

from tests.unit.docs.markdown import DOCS, table
from tests.unit.docs.statements import TEST, file_of
from tests.unit.docs.symbols import defines


def rows() -> list[list[str]]:
    return table((DOCS / "differences.md").read_text(), "what")


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_a_difference_is_shown_by_tests_that_exist(row: list[str]) -> None:
    shown_by = row[-1]
    named = TEST.findall(shown_by)
    assert named, "no test is named"
    assert not TEST.sub("", shown_by).strip(), "there is more than names of tests"
    for file, test in named:
        path = file_of(file)
        assert path.exists(), f"{file} is not there"
        assert defines(path, test), f"{file} has no {test}"


def test_each_document_is_linked() -> None:
    text = (DOCS / "differences.md").read_text()
    for name in ("driftq", "goqueue", "oqronkit", "seastreamer"):
        assert f"tests/acceptance/test_document_{name}.py" in text
