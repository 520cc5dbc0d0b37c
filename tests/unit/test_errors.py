"""The first line of an error."""

from __future__ import annotations

import pytest

from lakelog.errors import first_line


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("no such file", "no such file"),
        ("\n\n  a fault.  \nand where", "a fault."),
        ("", "ValueError"),
        (" \n ", "ValueError"),
    ],
)
def test_the_first_line_of_an_error_is_the_first_that_says_something(text: str, told: str) -> None:
    assert first_line(ValueError(text)) == told


def test_the_first_line_of_an_error_is_short() -> None:
    assert first_line(ValueError("x" * 999)) == "x" * 200
    assert first_line(ValueError("x" * 999), 500) == "x" * 500
