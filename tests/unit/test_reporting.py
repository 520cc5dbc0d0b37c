"""Log lines with names and fields, and failures that are summarised."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from lakelog.reporting import FailureLog, log_event, show_seconds

_log = logging.getLogger("lakelog.tests.reporting")


class Time:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def failures(time: Time) -> FailureLog:
    return FailureLog("PostgreSQL at db:5432/x", "database", _log, now=time)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return found


def test_a_line_has_a_name_a_sentence_and_fields(caplog: pytest.LogCaptureFixture) -> None:
    log_event(_log, logging.WARNING, "disk_full", "The disk is 100% full.", percent=100)
    (record,) = caplog.records
    found: Any = record
    assert record.getMessage() == "The disk is 100% full."
    assert (found.event, found.fields) == ("disk_full", {"percent": 100})
    assert record.funcName.startswith("test_a_line"), "the line is the caller's"


def test_repeated_failures_are_summarised(failures: FailureLog, time: Time, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(41):
        failures.failed("connection refused")
        time.now += 0.5
    assert lines(caplog) == ["PostgreSQL at db:5432/x: connection refused"]
    time.now = 130.0
    failures.failed("connection refused")
    assert lines(caplog) == ["PostgreSQL at db:5432/x: 41 failures in the last 30 s: connection refused"]
    time.now = 142.0
    failures.failed("connection refused")
    assert lines(caplog) == []


def test_each_kind_of_failure_has_its_own_lines(failures: FailureLog, caplog: pytest.LogCaptureFixture) -> None:
    for reason in ("connection refused", "the database system is starting up", "connection refused"):
        failures.failed(reason)
    assert [line.rpartition(": ")[2] for line in lines(caplog)] == [
        "connection refused",
        "the database system is starting up",
    ]


def test_the_end_of_an_outage_is_logged_once_with_its_duration(
    failures: FailureLog, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    failures.recovered()
    assert lines(caplog) == []
    failures.failed("connection refused")
    time.now += 20
    failures.failed("connection refused")
    time.now += 22
    lines(caplog)
    failures.recovered()
    failures.recovered()
    assert lines(caplog) == ["PostgreSQL at db:5432/x: available again after 42 s (2 failures)"]
    failures.failed("connection refused")
    assert lines(caplog) == ["PostgreSQL at db:5432/x: connection refused"], "the next outage is a new one"


def test_a_service_that_flaps_does_not_fill_the_log(
    failures: FailureLog, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(600):
        failures.failed("too many clients")
        time.now += 0.05
        failures.recovered()
        time.now += 0.05
    assert len(lines(caplog)) <= 2 * 3


def test_a_summary_counts_what_was_not_logged(
    failures: FailureLog, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    failures.failed("disk full")
    time.now += 3600
    failures.failed("disk full")
    assert lines(caplog)[-1] == "PostgreSQL at db:5432/x: 1 failure in the last 1 h 0 min: disk full"


def test_reasons_that_are_all_different_do_not_fill_the_memory(failures: FailureLog) -> None:
    for number in range(1000):
        failures.failed(f"reason {number}")
    assert len(failures._kinds) <= 20


def test_durations_for_people() -> None:
    assert [show_seconds(each) for each in (0.44, 42.4, 200, 7500)] == ["0.4 s", "42 s", "3 min 20 s", "2 h 5 min"]
