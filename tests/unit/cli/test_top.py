"""`lakelog top`: stuck groups first, with trends, causes and remedies."""

from __future__ import annotations

import json
from datetime import timedelta

import msgspec
import pytest

import lakelog
from lakelog.cli import top
from lakelog.cli.top import Row, change, print_rows, read, trend
from lakelog.errors import GroupNotFound
from lakelog.model.lease import ConsumeRequest
from lakelog.model.progress import GroupDescription, GroupSummary
from tests.unit.cli.test_groups import PAUSED, TIME, description


def summary(name: str, lag: int, seconds: float | None) -> GroupSummary:
    info = description().group
    return GroupSummary(
        name=name,
        kind=info.kind,
        settings=info.settings,
        version=1,
        paused=(),
        created_at=TIME,
        status="working",
        lag=lag,
        oldest_at=None if seconds is None else TIME - timedelta(seconds=seconds),
        member_count=2,
        dead_letters=3,
    )


def test_a_trend_is_told_with_the_time_that_is_left() -> None:
    assert change(100, None, 2.0) is change(100, 50, 0.0) is None
    assert change(20, 100, 2.0) == -40
    assert trend(1200, -40.0) == "-40/s, 30s left"
    assert (trend(1200, 80.0), trend(1200, 0.1), trend(0, -7.0), trend(5, None)) == ("+80/s", "", "-7/s", "")


def test_stuck_groups_are_shown_with_their_cause_and_its_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [Row(summary("billing", 17, 200), None, [PAUSED]), Row(summary("audit", 1200, 5), -40.0, [])]
    print_rows(rows, 20, now=TIME)
    shown = capsys.readouterr().out
    assert shown == (
        "2 groups, 1 stuck, lag 1,217\n"
        "GROUP    LAG    TREND            OLDEST  MEMBERS  DEAD  STATUS   STUCK\n"
        "billing  17                      3m      2        3     working  paused\n"
        "audit    1,200  -40/s, 30s left  5s      2        3     working\n"
        "\n"
        "billing\n"
        "  orders/1 (paused for 3m): The group is paused. Resume it with `lakelog groups resume billing`.\n"
        "    Ask: `lakelog doctor`\n"
    )
    print_rows(rows, 1, now=TIME)
    assert "audit" not in capsys.readouterr().out


def test_a_reading_has_all_groups_and_why_they_are_stuck(capsys: pytest.CaptureFixture[str]) -> None:
    with lakelog.connect("memory://") as log:
        topic = log.topic("orders")
        topic.create(partitions=1)
        for name in ("audit", "billing"):
            asked = ConsumeRequest(topic="orders", group=name, owner="w1", start_from="earliest")
            log._calls.transport.consume(asked, 5.0)
        topic.publish({"n": 1})
        log.group("billing").pause()
        rows = read(log, {"audit": 0, "billing": 0}, 2.0)
        assert {row.group.name: ([str(each.code) for each in row.stuck], row.change) for row in rows} == {
            "audit": (["no_member"], 0.5),
            "billing": (["paused"], 0.5),
        }
        assert json.loads(json.dumps(top.shape(rows[0]), default=str))["stuck"][0]["code"] in ("no_member", "paused")


class Listed:
    """A client that lists a group whose cell does not respond, and a group that was deleted since."""

    def __init__(self, name: str = "") -> None:
        self._name = name

    def groups(self) -> list[GroupSummary]:
        dark = msgspec.structs.replace(summary("dark", 0, None), status="unresponsive")
        return [dark, summary("gone", 5, 60)]

    def group(self, name: str) -> Listed:
        return Listed(name)

    def describe(self) -> GroupDescription:
        if self._name == "gone":
            raise GroupNotFound("Group 'gone' does not exist.")
        return msgspec.structs.replace(description(), stuck=(PAUSED,))


def test_a_group_that_is_gone_and_one_of_which_no_lag_is_known() -> None:
    rows = read(Listed(), {}, 0.0)  # type: ignore[arg-type]  # it has the methods that are called
    assert [(each.group.name, each.stuck) for each in rows] == [("dark", [PAUSED]), ("gone", [])]
