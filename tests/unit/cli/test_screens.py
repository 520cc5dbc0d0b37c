"""Output on a terminal of 80 columns: every line fits, no word is broken, ages instead of times."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from typer.testing import CliRunner

import lakelog
from lakelog.cli import messages, output, story, tokens
from lakelog.cli.app import app
from lakelog.model.message_story import MessageState, MessageStory, StoryEvent, StoryLane
from lakelog.model.token import Right, Token
from tests.kit.waiting import eventually

URL = "memory://screens-of-the-command-line"
ERROR = "no answer from the payment service at https://payments.example/api/v2/charges after 30 seconds"
TIME = re.compile(r"\d{4}-\d\d-\d\d")


@pytest.fixture(scope="module")
def log() -> Iterator[lakelog.Lakelog]:
    """A log with two topics, a group with dead letters, and runs of pipelines."""
    with lakelog.connect(URL) as opened:
        opened.topic("payments").create(
            2, max_age=timedelta(days=7), max_count=1000, max_bytes=10 << 30, tags=("billing", "pci")
        )
        orders = opened.topic("orders.european.v2")
        orders.create(partitions=2)
        for number in range(3):
            orders.publish({"total": number, "note": "some longer text"}, key=f"customer-{number}")
        run = opened.pipelines.begin("tier", orders.name, host="spark-driver-0.example.internal")
        figures = {"segments": 2, "messages": 1200, "planned_messages": 50_000}
        opened.pipelines.end(run, figures, failed=True, detail=ERROR)
        _kill(opened, orders.name)
        yield opened


def _kill(log: lakelog.Lakelog, topic: str) -> None:
    def fail(order: Any) -> None:
        raise TimeoutError(ERROR)

    with lakelog.connect(URL) as worker:
        worker.topic(topic).subscribe(fail, group="billing", start_from="earliest", retries=0)
        worker.start()
        eventually(lambda: len(log.group("billing").dead_letters().list()) == 3, within=30)


def screen(monkeypatch: pytest.MonkeyPatch, *arguments: str, watched: bool = True) -> list[str]:
    monkeypatch.setattr(output, "is_watched", lambda: watched)
    monkeypatch.setattr(messages, "is_watched", lambda: watched)
    result = CliRunner().invoke(app, [*arguments, "--url", URL], prog_name="lakelog", env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


@pytest.mark.parametrize(
    ("command", "headings"),
    [
        ("topics list", "NAME PARTITIONS RETENTION TAGS AGE"),
        ("dead list billing", "ID TOPIC KEY FAILURES AGE ERROR"),
        ("pipelines runs", "PIPELINE TOPIC STATE AGE TOOK PROGRESS DETAIL"),
    ],
)
def test_lists_fit_and_show_ages(
    log: lakelog.Lakelog, monkeypatch: pytest.MonkeyPatch, command: str, headings: str
) -> None:
    lines = screen(monkeypatch, *command.split())
    assert lines[0].split() == headings.split(), "a table, not blocks of fields"
    assert all(len(line) <= 80 for line in lines) and not any(TIME.search(line) for line in lines)
    assert any("orders.european.v2" in line for line in lines), "names are whole"


def test_an_error_is_cut_on_a_terminal_and_whole_in_a_pipe(
    log: lakelog.Lakelog, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert all(line.endswith("…") for line in screen(monkeypatch, "dead", "list", "billing")[1:])
    piped = screen(monkeypatch, "dead", "list", "billing", watched=False)
    assert len(piped) == 4 and all(line.endswith(f"TimeoutError: {ERROR}") for line in piped[1:])


def test_partitions_show_when_they_last_grew(log: lakelog.Lakelog, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = screen(monkeypatch, "topics", "describe", "payments")
    assert lines[-3].split("  ")[-1] == "LAST APPEND" and lines[-1].endswith("never")
    described = screen(monkeypatch, "topics", "describe", "orders.european.v2")
    assert any(re.search(r"\d+s ago$", line) for line in described[-2:]) and all(len(line) <= 80 for line in described)


def test_a_dead_letter_is_wrapped_between_words(log: lakelog.Lakelog, monkeypatch: pytest.MonkeyPatch) -> None:
    [letter, *_] = log.group("billing").dead_letters().list()
    lines = screen(monkeypatch, "dead", "show", "billing", letter.id)
    fields = lines[: lines.index("traceback")]
    assert all(len(line) <= 80 for line in fields)
    assert set(f"TimeoutError: {ERROR}".split()) <= set(" ".join(fields).split())


def test_a_story_is_wrapped_between_words_with_its_errors(
    log: lakelog.Lakelog, monkeypatch: pytest.MonkeyPatch
) -> None:
    [letter, *_] = log.group("billing").dead_letters().list()
    lines = screen(monkeypatch, "story", letter.id)
    assert all(len(line) <= 80 for line in lines) and "billing: dead" in lines
    steps = " ".join(" ".join(lines[lines.index("billing: dead") + 1 :]).split())
    assert "Z Leased by " in steps and "and the message became a dead letter. TimeoutError: " + ERROR in steps
    place = ("story", f"{letter.partition}:{letter.offset}", "--topic", letter.topic)
    assert screen(monkeypatch, *place) == lines
    piped = screen(monkeypatch, *place, watched=False)
    assert sum(line.endswith(f"TimeoutError: {ERROR}") for line in piped) == 1, "errors are whole in a pipe"
    told = json.loads("\n".join(screen(monkeypatch, *place, "--json", watched=False)))
    assert [event["kind"] for event in told["lanes"][0]["events"]] == ["leased", "died"]
    assert told["lanes"][0]["events"][1]["traceback"] and told["id"] == letter.id


def test_a_story_of_a_redriven_message_that_waits(capsys: pytest.CaptureFixture[str]) -> None:
    at = datetime(2026, 1, 31, 12, tzinfo=UTC)

    def event(kind: str, text: str, **given: Any) -> StoryEvent:
        return StoryEvent(kind=kind, text=text, **{"message_id": "1-0-7", **given})

    failed = event(
        "failed", "Attempt 1 failed after 5 ms.", at=at, next_at=at + timedelta(seconds=1), error="E: \x1b[2J"
    )
    events = (failed, event("redriven", "Redriven as 1-0-9."), event("waiting", "Waits.", message_id="1-0-9"))
    lane = StoryLane(group="billing", state=MessageState.WAITING, events=events)
    story.print_story(MessageStory(id="1-0-7", status="removed", topic="orders", partition=0, offset=7, lanes=(lane,)))
    assert capsys.readouterr().out.splitlines() == [
        "id        1-0-7",
        "status    removed",
        "topic     orders",
        "place     0:7",
        "appended  unknown",
        "",
        "billing: waiting",
        "  2026-01-31 12:00:00.000Z  Attempt 1 failed after 5 ms. Next attempt from 2026-01-31 12:00:01.000Z on.",
        "                            E: \\x1b[2J",
        "  time not recorded         Redriven as 1-0-9.",
        "  now                       Waits. (1-0-9)",
    ]
    story.print_story(MessageStory(id="1-0-8", status="unknown"))
    assert capsys.readouterr().err == "No group reads the topic, or the message is not in the log.\n"


def test_a_place_needs_its_topic(log: lakelog.Lakelog) -> None:
    result = CliRunner().invoke(app, ["story", "0:1", "--url", URL])
    assert result.exit_code == 2 and "needs --topic" in result.stderr


def test_messages_have_headings_on_a_terminal_only(log: lakelog.Lakelog, monkeypatch: pytest.MonkeyPatch) -> None:
    tail = ("tail", "orders.european.v2")
    first, *rest = screen(monkeypatch, *tail)
    assert first.split() == ["P:OFFSET", "APPENDED", "(UTC)", "KEY", "VALUE"] and len(rest) == 3
    assert all(line.index("{") == first.index("VALUE") for line in rest)
    assert [line.rpartition("  ")[2] for line in screen(monkeypatch, *tail, watched=False)] == [
        line.rpartition("  ")[2] for line in rest
    ]
    fetched = screen(monkeypatch, "fetch", "orders.european.v2", "--partition", "0")
    assert fetched == [] or fetched[0] == first


def test_a_topic_without_messages_says_so(log: lakelog.Lakelog) -> None:
    result = CliRunner().invoke(app, ["tail", "payments", "--url", URL])
    assert (result.stdout, result.stderr) == ("", "No messages to show in topic payments.\n")


def test_a_token_tells_how_long_it_lasts() -> None:
    now = datetime.now(UTC)

    def shown(ends: datetime | None) -> str:
        return tokens.expires_in(Token(id="a", name="n", rights=tuple(Right), created_at=now, expires_at=ends))

    assert shown(None) == "never" and shown(now - timedelta(seconds=1)) == "expired"
    assert shown(now + timedelta(days=90, seconds=30)) == "in 90d"


def test_what_a_command_says_is_wrapped_between_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    output.say(
        "lakelog: Topic 'orders' does not exist yet, it seems.\n         Create it first, please, or choose another."
    )
    assert capsys.readouterr().err.splitlines() == [
        "lakelog: Topic 'orders' does not exist",
        "         yet, it seems.",
        "         Create it first, please, or",
        "         choose another.",
    ]
