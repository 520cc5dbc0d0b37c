"""Tables and fields, and what a terminal is protected from."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys

import pytest

from lakelog.cli import output


def test_a_piped_table_is_plain_and_whole(capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 300
    output.print_table(["name", "size"], [("orders", 1), (long, 22)], empty="none")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines] == [["NAME", "SIZE"], ["orders", "1"], [long, "22"]]
    assert "\t" not in "".join(lines) and "\x1b" not in "".join(lines)
    assert len({line.rindex(line.split()[-1]) for line in lines}) == 1, "columns stand below each other"


def test_an_empty_table_says_what_to_do_and_prints_no_result(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(["name"], [], empty="None yet; make one.")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "None yet; make one.\n")


def test_signs_that_steer_a_terminal_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_fields({"name": "a\x1b[31mb\nc", "text": "größe"})
    text = capsys.readouterr().out
    assert "\x1b" not in text and len(text.splitlines()) == 2
    assert "a\\x1b[31mb\\nc" in text and "größe" in text


def test_json_is_one_line_when_piped(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_json({"a": [1, None]})
    text = capsys.readouterr().out
    assert text.count("\n") == 1 and json.loads(text) == {"a": [1, None]}


def test_on_a_terminal_brackets_are_no_markup() -> None:
    code = "from lakelog.cli.output import print_table; print_table(['name'], [('[red]a[/red]',)], empty='')"
    master, slave = pty.openpty()
    try:
        subprocess.run([sys.executable, "-c", code], stdout=slave, check=True, timeout=60)
        shown = os.read(master, 10_000).decode()
    finally:
        os.close(master)
        os.close(slave)
    assert "[red]a[/red]" in shown
