"""Long lines of Markdown: which have to be wrapped, and which cannot be."""

from __future__ import annotations

from scripts.checks.columns import MOST, long_lines


def test_lines_over_the_limit_are_found_with_their_width() -> None:
    content = "short\n" + "word " * 20 + "x\n" + "word " * 19 + "words\n"
    assert list(long_lines(content)) == [(2, MOST + 1)]


def test_tables_code_and_urls_are_excepted() -> None:
    words = "word " * 30
    content = f"| {words} |\n```\n{words}\n```\nsee https://example.org/{words}\n- [`name`](../{'long/' * 30}name.py)\n"
    assert list(long_lines(content)) == []


def test_text_after_a_code_block_counts_again() -> None:
    assert list(long_lines("```\n```\n" + "word " * 30)) == [(3, 150)]
