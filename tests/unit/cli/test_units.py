"""Durations, sizes, rates, times and pairs as people type them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from lakelog.cli.units import parse_duration, parse_pairs, parse_rate, parse_size, parse_time
from lakelog.model.display import show_age, show_duration, show_size, show_time


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("7d", 604800),
        ("12h", 43200),
        ("30m", 1800),
        ("45s", 45),
        ("250ms", 0.25),
        ("1h30m", 5400),
        ("1.5h", 5400),
        ("2w", 1209600),
    ],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("text", "rate"), [("100/s", 100), ("30/m", 0.5), ("30/min", 0.5), ("7.5", 7.5), ("36/h", 0.01)]
)
def test_rates_are_read(text: str, rate: float) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize("text", ["", "0/s", "-1/s", "100/d", "100 a second", "/s", "fast"])
def test_other_texts_are_no_rates(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="100/s"):
        parse_rate(text)


@pytest.mark.parametrize("text", ["", "7", "d", "7 d", "7days", "-1d", "0s", "1d!", "9" * 30 + "d", "٣d"])
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(typer.BadParameter, match=r"duration"):
        parse_duration(text)


@given(st.integers(min_value=1, max_value=10**12))
def test_a_shown_duration_reads_back(milliseconds: int) -> None:
    duration = timedelta(milliseconds=milliseconds)
    assert parse_duration(show_duration(duration)) == duration


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-1, "0s"), (0.9, "0s"), (59.9, "59s"), (60, "1m"), (3599, "59m"), (7200, "2h"), (86399, "23h"), (9e5, "10d")],
)
def test_an_age_is_shown_in_its_largest_unit(seconds: float, shown: str) -> None:
    assert show_age(timedelta(seconds=seconds)) == shown


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("10GiB", 10 << 30),
        ("500MB", 500_000_000),
        ("1.5 KiB", 1536),
        ("2k", 2000),
        ("1TiB", 1 << 40),
        ("7B", 7),
    ],
)
def test_sizes_are_read(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "-1", "0", "0.1", "1 XB", "1GiBB", "1e3"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="size"):
        parse_size(text)


def test_sizes_are_shown() -> None:
    assert [show_size(size) for size in (0, 1023, 1536, 10 << 30, 3 << 40)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "10.0 GiB",
        "3.0 TiB",
    ]


def test_times_are_read() -> None:
    now = datetime(2026, 1, 2, tzinfo=UTC)
    assert parse_time("2026-01-01T00:00Z") == datetime(2026, 1, 1, tzinfo=UTC)
    assert parse_time("2026-01-01") == datetime(2026, 1, 1, tzinfo=UTC)
    assert parse_time("2026-01-01T02:00:00+02:00") == datetime(
        2026, 1, 1, tzinfo=timezone(timedelta(hours=2))
    ) + timedelta(hours=2)
    assert parse_time("24h", now) == datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("text", ["yesterday", "2026-13-01", "12", ""])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not a time"):
        parse_time(text)


def test_times_are_shown_in_utc() -> None:
    assert show_time(datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))) == "2026-01-01 00:00:00.000Z"
    assert show_time(None) == ""


def test_pairs_are_read() -> None:
    assert parse_pairs(["a=1", "b=x=y", "c="], "--header") == {"a": "1", "b": "x=y", "c": ""}
    assert parse_pairs(None, "--header") == {}
    with pytest.raises(typer.BadParameter, match="NAME=TEXT"):
        parse_pairs(["a"], "--header")
    with pytest.raises(typer.BadParameter, match="NAME=TEXT"):
        parse_pairs(["=a"], "--header")
