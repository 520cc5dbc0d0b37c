"""The timeline of a group: lines, gaps, marks and the table behind them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from lakelog.console.chart import Axis, chart_of, round_up
from lakelog.console.pages.groups import spark_of
from lakelog.console.timeline import SPANS, span_of, thinned, timeline_of
from lakelog.engine.history.samples import SampleBody, pack
from lakelog.model.history import GroupHistory, HistoryPoint
from lakelog.model.mark import Mark
from lakelog.storage.history import Sample
from tests.unit.console.browser import browsing, logged_in

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
AXIS = Axis(NOW - 100 * MINUTE, NOW, MINUTE)


def _point(minutes_ago: int, lag: int, rate: float | None = 1.0) -> HistoryPoint:
    return HistoryPoint(
        at=NOW - minutes_ago * MINUTE,
        lag=lag,
        oldest_seconds=lag / 10,
        leased=0,
        waiting=0,
        members=1,
        dead_letters=0,
        done_per_second=rate,
    )


def _history(points: list[HistoryPoint]) -> GroupHistory:
    return GroupHistory(group="billing", since=NOW - 100 * MINUTE, until=NOW, step_seconds=60, points=points)


def test_a_line_goes_from_the_left_to_the_right_and_up_with_the_figure() -> None:
    points = [(NOW - 100 * MINUTE, 0.0), (NOW - 99 * MINUTE, 5.0), (NOW - 98 * MINUTE, 10.0)]
    (line,) = chart_of(AXIS, "Lag", [("lag", "lag", points)]).lines
    assert line.path == "M0 100L1 52L2 4"
    assert line.area == "M0 100L0 100L1 52L2 4L2 100Z"


def test_a_line_has_a_gap_where_no_sample_was_taken_or_the_figure_is_unknown() -> None:
    far = [(NOW - n * MINUTE, 1.0) for n in (90, 89, 80, 79)]
    assert chart_of(AXIS, "Lag", [("lag", "lag", far)]).lines[0].path.count("M") == 2
    unknown = [(NOW - 90 * MINUTE, 1.0), (NOW - 89 * MINUTE, None), (NOW - 88 * MINUTE, 1.0)]
    (line,) = chart_of(AXIS, "Lag", [("lag", "lag", unknown)]).lines
    assert (line.path, line.dots) == ("", [(10.0, 4.0), (12.0, 4.0)]), "single points are dots"


@pytest.mark.parametrize(
    ("value", "top"), [(0, 1), (1, 1), (1.2, 2), (3, 5), (10, 10), (11, 20), (51, 100), (2400, 5000)]
)
def test_the_upper_edge_is_a_round_number(value: float, top: float) -> None:
    assert round_up(value) == top


def test_many_points_are_drawn_as_few_and_keep_their_peaks() -> None:
    points = [_point(1000 - n, lag=900 if n == 500 else n % 7, rate=float(n % 2)) for n in range(1000)]
    few = thinned(points, 240)
    assert len(few) <= 240 and max(each.lag for each in few) == 900
    assert few[-1].at == points[-1].at
    assert thinned(points[:4], 240) == points[:4] and thinned([], 240) == []
    (joined,) = thinned([_point(1, 3, None), _point(0, 1, 4.0)], 1)
    assert (joined.lag, joined.done_per_second) == (3, 4.0), "an unknown rate does not count"


def test_marks_are_numbered_from_the_oldest_on_and_lie_at_their_time() -> None:
    newest = Mark(number=9, at=NOW - 25 * MINUTE, kind="mark", text="deploy 2")
    oldest = Mark(number=7, at=NOW - 75 * MINUTE, kind="seek", text="moved group billing")
    made = timeline_of(_history([_point(3, 1), _point(2, 2)]), [newest, oldest])
    assert [(each.number, each.place, each.mark.text) for each in made.marks] == [
        (1, 25.0, "moved group billing"),
        (2, 75.0, "deploy 2"),
    ]
    assert [row.lag for row in made.rows] == [2, 1], "the newest row comes first"
    assert made.labels == [(25.0, "1"), (75.0, "2")]


def test_marks_that_are_close_together_have_one_label() -> None:
    times = (90, 50, 48, 47, 1)
    marks = [Mark(number=n, at=NOW - n * MINUTE, kind="mark", text="deploy") for n in sorted(times)]
    labels = timeline_of(_history([_point(3, 1)]), marks).labels
    assert labels == [(10.0, "1"), (50.0, "2-4"), (99.0, "5")]


def test_the_chosen_time() -> None:
    assert [span_of(text) for text in ("7d", "", "1y", "<b>")] == ["7d", "1h", "1h", "1h"]


def test_the_page_draws_the_samples_and_the_marks_and_has_a_table_behind_them() -> None:
    async def scenario() -> None:
        async with browsing() as browser:
            await logged_in(browser)
            empty = (await browser.get("groups/billing")).body
            assert b"There is no sample of this time" in empty and b"<svg" not in empty
            await browser.submit("marks", {"text": "deploy <1.4>", "group": "billing"})
            await browser.world.engine.sampler.sample()
            page = (await browser.get("groups/billing?span=6h")).body.decode()
            assert page.count('<figure class="chart">') == 3
            assert '<a href="../groups/billing?span=6h" aria-current="true">6h</a>' in page
            assert all(f"?span={each}" in page for each in SPANS)
            assert "deploy &lt;1.4&gt;" in page and '<line class="mark"' in page
            assert '<details id="timeline-table">' in page and "10</td>" in page, "the table has the lag"

    asyncio.run(scenario())


async def test_the_list_of_groups_draws_the_lag_of_the_last_hour() -> None:
    async with browsing() as browser:
        await logged_in(browser)
        assert b"<svg" not in (await browser.get("groups")).body
        engine = browser.world.engine
        (summary,) = await engine.groups.list(browser.world.scope)
        assert spark_of(summary, NOW) is spark_of(replace(summary, lags=()), NOW) is None
        lags = (None, 40, 30, *[None] * 6, 20, 10, None)
        spark = spark_of(replace(summary, lags=lags, lag=5), NOW + MINUTE)
        assert spark is not None and (spark.first, spark.most) == (40, 40)
        (line,) = spark.chart.lines
        assert line.path.count("M") == 2 and line.path.endswith("L100 90.4"), "a gap, and then up to the present lag"
        ((topic, group),) = await engine.catalog.groups.group_topic_list(
            *await engine.catalog.groups.group_list(browser.world.scope)
        )
        body = SampleBody(finished=0, lag=700, oldest_seconds=0, leased=0, waiting=0, members=0, dead_letters=0)
        sample = Sample(group_id=group.group_id, incarnation=topic.incarnation, body=pack(body))
        await engine.catalog.samples.samples_write(await engine.sampler.minute() // 5 * 5 - 5, [sample])
        page = (await browser.get("groups")).body.decode()
        assert 'aria-label="Lag in the last hour: 700 at first, at most 700"' in page
