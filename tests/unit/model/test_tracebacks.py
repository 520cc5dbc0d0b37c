"""A traceback is stored whole, or with its beginning and its end."""

from __future__ import annotations

import pytest

from lakelog.model.tracebacks import MAX_TRACEBACK_BYTES, cut_traceback

FRAMES = "".join(f'  File "app.py", line {n}, in step_{n}\n    step_{n + 1}(order)\n' for n in range(1000))
LONG = f"Traceback (most recent call last):\n{FRAMES}ValueError: no account\n"


def test_a_short_one_is_kept_as_it_is() -> None:
    text = "Traceback (most recent call last):\nValueError: zu spät ☃\n"
    assert cut_traceback(text) == text


def test_a_long_one_keeps_its_first_and_last_lines_whole() -> None:
    found = cut_traceback(LONG)
    assert MAX_TRACEBACK_BYTES * 0.9 < len(found) <= MAX_TRACEBACK_BYTES
    lines = found.splitlines()
    assert lines[0] == "Traceback (most recent call last):" and lines[-1] == "ValueError: no account"
    assert "in step_0" in found and "in step_999" in found and "in step_500\n" not in found
    (gap,) = (line for line in lines if "left out" in line)
    assert set(lines) - {gap} <= set(LONG.splitlines())


@pytest.mark.parametrize("text", ["☃" * 9000, "é" + "☃" * 9000, "a\n" + "☃" * 9000, "☃" * 9000 + "\n", "\n" * 9000])
def test_what_is_kept_fits_and_is_valid_however_the_text_is_cut(text: str) -> None:
    found = cut_traceback(text)
    assert len(found.encode()) <= MAX_TRACEBACK_BYTES and cut_traceback(found) == found
    assert "\ufffd" not in found


def test_what_postgresql_cannot_store_is_taken_out() -> None:
    assert cut_traceback("a\0b\ud800c") == "ab?c"
