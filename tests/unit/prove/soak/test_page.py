"""The page of a soak: untrusted texts are escaped, and every line is drawn within its chart."""

from __future__ import annotations

import re

import pytest

from prove.soak.command import _show
from prove.soak.gauges import GaugeReading
from prove.soak.latency import Window
from prove.soak.page import HEIGHT, LEFT, WIDTH, Soaked, chart, page
from prove.soak.verdicts import SoakVerdict

HOSTILE = "<script>alert('x')</script>&\"'"


def soaked(*, holds: bool = True, broken: tuple[str, ...] = ()) -> Soaked:
    taken = [
        GaugeReading(at=at, memory={HOSTILE: 10}, dead=1, dead_by_table={}, database=1, wal=1, store=1,
                     lag={HOSTILE: 3},
              published=1)
        for at in (0.0, 10.0)
    ]  # fmt: skip
    windows = [Window(at=10.0, publish_p50=1.0, publish_p99=2.0, delivery_p99=3.0)]
    shown = SoakVerdict(name=HOSTILE, asked=HOSTILE, measured=HOSTILE, holds=holds)
    return Soaked(
        seed=1, minutes=1.0, servers=3, peak=None, rate=10.0, keep_seconds=40.0, verdicts=[shown], broken=list(broken),
        taken_away=[(2.0, 5.0)], speed=[(0.5, 0.9)], taken=taken, windows=windows,
    )  # fmt: skip


def test_hostile_texts_stay_texts() -> None:
    found = page(soaked(broken=(HOSTILE,)))
    assert "<script" not in found
    assert found.count("<svg") == 7


def test_one_that_does_not_hold_or_a_broken_client_is_enough() -> None:
    assert soaked().holds and "Soak <span class='valid'>" in page(soaked())
    assert not soaked(holds=False).holds and "does not hold" in page(soaked(holds=False))
    assert not soaked(broken=("worker-1",)).holds


def test_lines_stay_within_the_picture() -> None:
    drawn = chart({"one": [(0.0, 0.0), (3600.0, 50.0)], "other": [(60.0, 1e9)]})
    lines = re.findall("points='([^']*)'", drawn)
    points = [tuple(map(float, each.split(","))) for line in lines for each in line.split(" ")]
    assert len(points) == 3
    assert all(LEFT <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in points)


def test_a_run_that_ended_at_its_first_look_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    _show(soaked(broken=("worker-1",)))
    said = " ".join("".join(capsys.readouterr()).split())
    assert "90% of their best speed" in said and "stalled for 3 s" in said
