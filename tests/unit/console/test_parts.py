"""The parts of pages: what needs attention, sorting, remedies as forms, the map of partitions, figures of a server."""

from __future__ import annotations

import base64
import zlib
from datetime import UTC, datetime, timedelta

import pytest

from lakelog.console.figures import figures_of
from lakelog.console.heat_map import heat_map
from lakelog.console.page import Form
from lakelog.console.pages.seek import seek_target
from lakelog.console.remedies import button_of
from lakelog.console.rendering import render
from lakelog.console.tables import Sorting, sort_and_filter
from lakelog.engine.groups.remedies import Remedies
from lakelog.errors import InvalidRequest
from lakelog.model.attention import concerns_of
from lakelog.model.group import GroupKind, GroupSettings
from lakelog.model.progress import GroupSummary

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def _group(name: str, status: str, lag: int, minutes: int | None = None) -> GroupSummary:
    return GroupSummary(
        name=name,
        kind=GroupKind.LEASE,
        settings=GroupSettings(),
        version=1,
        paused=(),
        created_at=NOW,
        status=status,
        lag=lag,
        oldest_at=None if minutes is None else NOW - timedelta(minutes=minutes),
        member_count=0,
        dead_letters=0,
    )


def test_the_most_important_groups_come_first() -> None:
    groups = [
        _group("fine", "caught-up", 0),
        _group("busy", "working", 5, 1),
        _group("late", "working", 5, 11),
        _group("paused", "paused", 0),
        _group("alone", "no-consumer", 3, 2),
        _group("alone-longer", "no-consumer", 3, 20),
        _group("idle", "no-consumer", 0),
        _group("broken", "unreadable", 1, 1),
        _group("dark", "unresponsive", 0),
    ]
    names = [each.name for each in concerns_of(groups, NOW)]
    assert names == ["dark", "broken", "alone-longer", "alone", "paused", "late"]


def test_sorting() -> None:
    columns = {"name": lambda row: row[0], "size": lambda row: -row[1]}
    rows = [("b", 1), ("a", 2), ("ab", 3)]
    assert sort_and_filter(rows, Sorting.of({}, columns), columns, lambda row: row[0]) == [
        ("a", 2),
        ("ab", 3),
        ("b", 1),
    ]
    chosen = Sorting.of({"sort": "size", "q": " B "}, columns)
    assert sort_and_filter(rows, chosen, columns, lambda row: row[0]) == [("ab", 3), ("b", 1)]
    assert Sorting.of({"sort": "nothing"}, columns).by == "name"
    assert chosen.link("name") == "?sort=name&q=b"


def test_every_remedy_with_a_call_is_a_form() -> None:
    remedies = Remedies("billing", "orders", 3)
    made = [
        *remedies.resume(is_whole=True),
        *remedies.resume(is_whole=False),
        *remedies.past(7, GroupKind.LEASE),
        *remedies.past(7, GroupKind.CURSOR),
        *remedies.start(),
        *remedies.skip_one(5),
        *remedies.again(5),
        *remedies.window(100),
        *remedies.unordered(),
        *remedies.unfiltered(is_whole=True),
        *remedies.unfiltered(is_whole=False),
        *remedies.keep_longer(),
    ]
    for remedy in made:
        assert (button_of("billing", remedy) is None) == (remedy.http is None), remedy.label
    for kind in GroupKind:
        assert remedies.past(7, kind)[1].label == "Give up the messages below 7"
    (skip,) = remedies.skip_one(5)
    button = button_of("billing", skip)
    assert button is not None
    assert (button.path, button.fields) == (
        "groups/billing/skip",
        {"topic": "orders", "partition": "3", "offset": "6"},
    )


def test_the_target_of_a_seek() -> None:
    assert seek_target(Form({"offset": "7", "position": "latest"})) == {"offset": 7}
    assert seek_target(Form({"position": "earliest", "time": "", "offset": ""})) == {"to": "earliest"}
    for text in ("2026-01-31T12:00", "2026-01-31T12:00:00", "2026-01-31T12:00:00Z", "2026-01-31T13:00:00+01:00"):
        assert seek_target(Form({"time": text})) == {"to": NOW}, text
    for wrong in ({}, {"offset": "-1"}, {"offset": "x"}, {"time": "noon"}, {"position": "nowhere"}):
        with pytest.raises(InvalidRequest):
            seek_target(Form(wrong))


def test_the_map_of_partitions() -> None:
    made = heat_map([0, 50, 100, *[0] * 497])
    image = base64.b64decode(made.source.partition(",")[2])
    assert (made.columns, made.rows) == (23, 22)
    at = image.index(b"IDAT")
    length = int.from_bytes(image[at - 4 : at], "big")
    lines = zlib.decompress(image[at + 4 : at + 4 + length])
    assert len(lines) == 22 * 24
    assert list(lines[1:5]) == [1, 5, 9, 1]
    assert lines[-1] == 0, "the squares after the last partition are empty"
    assert len(heat_map(list(range(10_000))).source) < 20_000


def test_figures_of_a_server() -> None:
    metrics = (
        'lakelog_commits_total{kind="messages"} 3.0\nlakelog_commits_total{kind="progress"} 1.0\n'
        "lakelog_commit_seconds_total 0.01\nlakelog_lost_messages_total 2.0\n# lakelog_x 1\n"
    )
    found = {each.label: each for each in figures_of(metrics)}
    assert found["Mean commit"].text == "2.5 ms"
    assert found["Messages lost by failovers"].is_alarm
    assert not found["Unreachable cells"].is_alarm
    assert figures_of("") == []


def test_a_code_in_a_sentence_is_shown_as_code_and_everything_else_as_text() -> None:
    error = InvalidRequest("Run `lakelog <topics>` & <b>read</b>.")
    frame = {"root": "./", "title": "x", "menu": [], "here": "", "section": "", "viewer": None, "now": NOW, "done": ""}
    html = render("failed", {**frame, "error": error, "is_outage": False})
    assert "Run <code>lakelog &lt;topics&gt;</code> &amp; &lt;b&gt;read&lt;/b&gt;." in html
