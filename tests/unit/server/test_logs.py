"""The two forms of the server's log."""

from __future__ import annotations

import json
import logging
import re

import pytest

from lakelog.reporting import log_event
from lakelog.server import configure_logging

_log = logging.getLogger("lakelog.tests.logs")


def test_json_has_one_object_per_line_with_a_stable_event_and_fields(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", "json", worker=3)
    log_event(_log, logging.INFO, "topic_seen", "Topic orders\nwas seen: 100%.", topic="orders", messages=7)
    (line,) = capsys.readouterr().err.splitlines()
    found = json.loads(line)
    assert list(found) == ["timestamp", "level", "event", "message", "topic", "messages", "worker", "logger"]
    assert (found["event"], found["message"], found["messages"]) == ("topic_seen", "Topic orders\nwas seen: 100%.", 7)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", found["timestamp"])


def test_other_libraries_log_the_same_way(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", "json")
    logging.getLogger("some.library").warning("said %s", "this")
    logging.getLogger("some.library").debug("not this")
    (line,) = capsys.readouterr().err.splitlines()
    found = json.loads(line)
    assert (found["event"], found["message"], found["level"]) == ("log", "said this", "warning")
    assert found["logger"] == "some.library"


def test_a_line_for_people_begins_with_time_and_level_and_is_the_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", "console")
    log_event(_log, logging.INFO, "topic_seen", "Topic orders was seen.", topic="orders")
    configure_logging("info", "console", worker=1)
    log_event(_log, logging.WARNING, "topic_seen", "Topic orders was seen.", topic="orders")
    first, second = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"\d\d:\d\d:\d\d info    Topic orders was seen\.", first)
    assert re.fullmatch(r"\d\d:\d\d:\d\d warning \[worker 1\] Topic orders was seen\.", second)


def test_a_message_cannot_write_to_the_operators_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", "console")
    log_event(_log, logging.INFO, "x", "reason: \x1b[2J\nfake line")
    (line,) = capsys.readouterr().err.splitlines()
    assert "\x1b" not in line and line.endswith("fake line")


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_a_traceback_has_no_local_variables(log_format: str, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", log_format)
    secret = "-".join(["lkl", "hunter2"])
    try:
        raise ValueError("boom")
    except ValueError as error:
        log_event(_log, logging.ERROR, "failed", "It failed.", error)
    written = capsys.readouterr().err
    assert "ValueError" in written and "test_logs.py" in written and secret not in written
