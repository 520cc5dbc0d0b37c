"""Options of a read: what they mean, and what is said when they mean nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.client.reading.limits import offsets_of, time_of
from lakelog.errors import InvalidRequest
from lakelog.spark.configuring import LOCAL_SETTINGS, SETTINGS
from lakelog.spark.options import DEAD_LETTER_OPTIONS, READ_OPTIONS, STREAM_OPTIONS, WRITE_OPTIONS
from lakelog.spark.reading.ranges import ResolvedRanges, parse_read_options

_REFERENCE = Path(__file__).parents[4] / "docs" / "reference" / "spark.md"
_NOW = datetime(2026, 5, 10, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "ago"),
    [
        ("1 day", timedelta(days=1)),
        ("2 days ago", timedelta(days=2)),
        ("90 min", timedelta(minutes=90)),
        ("1h30m", timedelta(minutes=90)),
        ("1 hour 30 minutes", timedelta(minutes=90)),
        ("250ms", timedelta(milliseconds=250)),
        ("1.5 WEEKS", timedelta(days=10.5)),
    ],
)
def test_a_duration_is_that_long_ago(text: str, ago: timedelta) -> None:
    assert time_of(text, "since", _NOW) == _NOW - ago
    assert time_of(ago, "since", _NOW) == _NOW - ago


def test_a_time_is_iso_and_utc_unless_it_says_otherwise() -> None:
    assert time_of("2026-05-01", "since") == datetime(2026, 5, 1, tzinfo=UTC)
    assert time_of("2026-05-01T02:00:00+02:00", "since") == datetime(2026, 5, 1, tzinfo=UTC)
    assert time_of("2026-05-01T00:00:00Z", "until") == datetime(2026, 5, 1, tzinfo=UTC)
    assert time_of(_NOW, "until") == _NOW


@pytest.mark.parametrize("text", ["", "yesterday", "1 fortnight", "day", "1 day and more", "99999999999 weeks"])
def test_what_is_no_time_is_refused_with_what_is_one(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"`since` must be a time such as 2026-01-31T12:00:00Z, or how long ago"):
        time_of(text, "since", _NOW)


def test_a_naive_datetime_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="needs a zone"):
        time_of(datetime(2026, 1, 1), "since")  # noqa: DTZ001


def test_offsets_by_partition() -> None:
    assert offsets_of('{"0": 12, "3": 0}', "startOffsets") == {0: 12, 3: 0}
    assert offsets_of({0: 12}, "start_offsets") == {0: 12}
    assert offsets_of(None, "startOffsets") is None


@pytest.mark.parametrize("text", ["12", "[1]", "{", '{"a": 1}', '{"0": "x"}', '{"0": -1}', '{"-1": 1}', '{"0": true}'])
def test_offsets_that_make_no_sense_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r'`endOffsets` gives an offset for each partition, as {"0": 12, "1": 40}'):
        offsets_of(text, "endOffsets")


def test_options_are_read_whatever_their_case() -> None:
    options = parse_read_options(
        {"topic": "t", "STARTOFFSETS": '{"0": 1}', "Since": "1 day", "store.endpoint": "http://x"}, _NOW
    )
    assert options.topic == "t" and options.plan.starts == {0: 1}
    assert options.plan.since == _NOW - timedelta(days=1)
    assert options.store == {"endpoint": "http://x"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "Option `topic` is missing"),
        ({"topic": "t", "startOffset": "{}"}, "Did you mean `startOffsets`"),
        ({"topic": "t", "group": "g"}, "It is an option of spark.readStream"),
        ({"topic": "t", "zebra": "red"}, "Unknown option `zebra` for spark.read. Known options: topic, url"),
    ],
)
def test_a_wrong_option_is_never_ignored(options: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        parse_read_options(options)


@given(
    incarnation=st.integers(0),
    ranges=st.dictionaries(st.integers(0, 99), st.tuples(st.integers(0), st.integers(0))),
)
def test_pinned_ranges_come_back_as_they_were(incarnation: int, ranges: dict[int, tuple[int, int]]) -> None:
    pinned = ResolvedRanges(incarnation=incarnation, ranges=ranges)
    assert ResolvedRanges.of(pinned.text()) == pinned


def test_the_reference_names_every_option_and_setting() -> None:
    rows = [line.split("|") for line in _REFERENCE.read_text().splitlines() if line.startswith("| `")]
    named = {row[1].strip().strip("`") for row in rows}
    assert named >= {*READ_OPTIONS, *STREAM_OPTIONS, *WRITE_OPTIONS, *DEAD_LETTER_OPTIONS, *SETTINGS, *LOCAL_SETTINGS}
