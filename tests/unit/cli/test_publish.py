"""`lakelog publish` and `lakelog dead retry`: what a value on the command line becomes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import lakelog
from lakelog.cli.app import app
from tests.kit.waiting import eventually

URL = "memory://values-of-the-command-line"


@pytest.fixture
def log() -> Iterator[lakelog.Lakelog]:
    """A client of the log that the commands see."""
    with lakelog.connect(URL) as opened:
        opened.topic("orders").create(if_missing=True)
        yield opened
        opened.topic("orders").delete()


def run(*arguments: str, stdin: str | bytes = "", code: int = 0) -> Result:
    result = CliRunner().invoke(app, [*arguments, "--url", URL], input=stdin, prog_name="lakelog")
    assert result.exit_code == code, result.output
    return result


def stored(log: lakelog.Lakelog) -> Any:
    return log.topic("orders").fetch(0, last=1).messages[0]


@pytest.mark.parametrize(
    ("value", "options", "content_type", "raw"),
    [
        ('{"total": 30}', (), "application/json", b'{"total": 30}'),
        (" [1, 2.50]\n", (), "application/json", b"[1, 2.50]"),
        ("hello", (), "text/plain", b"hello"),
        ("", (), "text/plain", b""),
        ("12", (), "text/plain", b"12"),
        ('"hello"', (), "text/plain", b'"hello"'),
        ('{"total": 30}', ("--format", "lines"), "text/plain", b'{"total": 30}'),
        ('{"total": 30}', ("--format", "raw"), None, b'{"total": 30}'),
        ("12", ("--format", "json"), "application/json", b"12"),
        ("12", ("--format", "jsonl"), "application/json", b"12"),
        ('"hello"', ("--format", "json"), "text/plain", b"hello"),
        ("null", ("--format", "json"), None, None),
        ('{"value": {"a": 1}, "key": "k"}', ("--format", "messages"), "application/json", b'{"a": 1}'),
    ],
)
def test_a_value_is_stored_as_what_it_is(
    log: lakelog.Lakelog, value: str, options: tuple[str, ...], content_type: str | None, raw: bytes | None
) -> None:
    result = run("publish", "orders", "--value", value, *options)
    message = stored(log)
    assert (message.content_type, message.raw, result.stderr) == (content_type, raw, "")


@pytest.mark.parametrize("value", ["{total: 30}", "{'total': 30}", "[1, 2", "{" * 5000])
def test_a_value_that_only_starts_like_json_is_stored_as_text_and_that_is_said(
    log: lakelog.Lakelog, value: str
) -> None:
    result = run("publish", "orders", "--value", value)
    message = stored(log)
    assert (message.content_type, message.value) == ("text/plain", value)
    assert "starts like JSON but is not JSON: " in result.stderr
    assert "stored as text" in result.stderr and "--format json" in result.stderr


@pytest.mark.parametrize("wanted", ["json", "jsonl"])
@pytest.mark.parametrize("value", ["{total: 30}", "hello", ""])
def test_broken_json_is_refused_where_json_was_asked_for(log: lakelog.Lakelog, value: str, wanted: str) -> None:
    result = run("publish", "orders", "--value", value, "--format", wanted, code=2)
    assert "it is not JSON: " in result.stderr
    assert log.topic("orders").fetch(0).high_watermark == 0


def test_the_key_of_a_json_value_comes_from_the_key_field(log: lakelog.Lakelog) -> None:
    run("publish", "orders", "--value", '{"id": "a", "other": 7}', "--key-field", "other")
    assert stored(log).key == b"7"
    log.topic("orders").alter(key_field="id")
    run("publish", "orders", "--value", '{"id": "a", "other": 7}')
    assert stored(log).key == b"a"
    run("publish", "orders", "--value", '{"id": "a"}', "--key", "mine")
    assert stored(log).key == b"mine"
    assert "'id'" in run("publish", "orders", "--value", '{"other": 7}', code=2).stderr
    run("publish", "orders", "--value", "text has no fields")
    assert stored(log).key is None
    assert "needs a JSON" in run("publish", "orders", "--value", "text", "--key-field", "id", code=2).stderr


def test_a_file_can_be_one_json_value(log: lakelog.Lakelog) -> None:
    pretty = '{\n  "total": 30\n}\n'
    run("publish", "orders", "--format", "json", stdin=pretty)
    assert stored(log).value == {"total": 30}
    assert (
        "The input is not a message: it is not JSON"
        in run("publish", "orders", "--format", "json", "--skip-bad", stdin="{", code=1).stderr
    )
    said = run("publish", "orders", stdin=pretty).stderr
    assert "Line 1 starts like JSON but is not JSON" in said and "--format json" in said


def test_bytes_of_the_shell_that_are_not_utf8_are_refused_as_text_and_kept_as_raw(log: lakelog.Lakelog) -> None:
    odd = b"\xff\xfe".decode(errors="surrogateescape")
    assert "not UTF-8" in run("publish", "orders", "--value", odd, code=2).stderr
    run("publish", "orders", "--value", odd, "--format", "raw")
    assert stored(log).raw == b"\xff\xfe"


@pytest.fixture
def dead_letter(log: lakelog.Lakelog) -> Iterator[str]:
    """The id of a message that group g has given up: JSON that was published as text."""
    log.topic("orders").publish('{"total": 30}')

    def fail(order: Any) -> None:
        raise TypeError("string indices must be integers")

    with lakelog.connect(URL) as worker:
        worker.topic("orders").subscribe(fail, group="g", start_from="earliest", retries=0)
        worker.start()
        letters = log.group("g").dead_letters()
        eventually(lambda: len(letters.list()) == 1, within=30)
        worker.stop()
    yield letters.list()[0].id
    log.group("g").delete()


def test_a_dead_letter_shows_its_content_type(dead_letter: str) -> None:
    shown = run("dead", "show", "g", dead_letter).stdout
    assert ["content", "type", "text/plain"] in [line.split() for line in shown.splitlines()]


@pytest.mark.parametrize(
    ("value", "options", "content_type", "found"),
    [
        ('{"total": 31}', (), "application/json", {"total": 31}),
        ('{"total": 31}', ("--format", "lines"), "text/plain", '{"total": 31}'),
        ("31", ("--format", "json"), "application/json", 31),
        ("hello", (), "text/plain", "hello"),
        ("hello", ("--format", "raw"), "text/plain", "hello"),
    ],
)
def test_a_retried_value_has_its_content_type(
    log: lakelog.Lakelog, dead_letter: str, value: str, options: tuple[str, ...], content_type: str, found: object
) -> None:
    run("dead", "retry", "g", dead_letter, "--value", value, *options)
    message = stored(log)
    assert (message.offset, message.content_type, message.value) == (1, content_type, found)


def test_a_retried_value_that_is_none_is_refused(dead_letter: str) -> None:
    retry = ("dead", "retry", "g", dead_letter, "--value")
    assert "it is not JSON" in run(*retry, "{total: 31}", "--format", "json", code=2).stderr
    assert "A value must not be null" in run(*retry, "null", "--format", "json", code=2).stderr
    assert "keeps its key" in run(*retry, "{}", "--format", "messages", code=2).stderr
    assert "stored as text" in run(*retry, "{total: 31}").stderr


@pytest.mark.parametrize("text", ['{"n":1}', "[1]", '"text"', "two words"])
def test_a_message_in_place_of_a_file_is_pointed_to_the_option(text: str) -> None:
    told = " ".join(run("publish", "orders", text, code=2).output.replace("│", " ").split())
    assert "cannot be read" in told and "use --value" in told


def test_the_name_of_a_missing_file_is_no_message() -> None:
    told = run("publish", "orders", "no-such-file.jsonl", code=2).output
    assert "cannot be read" in told and "--value" not in told
