"""The soak report as one page of HTML: requirements, measurements, and charts over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

import msgspec

from prove.lab.report.page import document
from prove.soak.gauges import GaugeReading
from prove.soak.latency import Window
from prove.soak.verdicts import SoakVerdict

WIDTH, LEFT, RIGHT, HEIGHT = 1150, 210, 30, 150
_COLOURS = ("#2563eb", "#d97706", "#059669", "#7c3aed", "#dc2626")
Lines = Mapping[str, Sequence[tuple[float, float]]]
"""The points of each line of a chart, by its name: seconds and value."""


class Soaked(msgspec.Struct, frozen=True, kw_only=True):
    """All results, as written to `soak.json`."""

    seed: int
    minutes: float
    servers: int
    peak: float | None
    """Messages per second of the slowest group; None if the rate was given."""
    rate: float
    keep_seconds: float
    verdicts: list[SoakVerdict]
    broken: list[str]
    """The clients that failed."""
    taken_away: list[tuple[float, float]]
    """Start and end in seconds of intervals in which the hypervisor took the processors away."""
    speed: list[tuple[float, float]]
    """Processor speed as a share of the best, at each reading."""
    taken: list[GaugeReading]
    windows: list[Window]

    @property
    def holds(self) -> bool:
        return not self.broken and all(each.holds for each in self.verdicts)


def page(soaked: Soaked) -> str:
    word = "valid" if soaked.holds else "invalid"
    peak = "" if soaked.peak is None else f", half of a peak of {soaked.peak:,.0f}"
    about = (
        f"{soaked.minutes:g} minutes, {soaked.servers} servers, {soaked.rate:,.0f} messages per second{peak}; "
        f"messages are kept for {soaked.keep_seconds:g} s"
    )
    parts = [f"<h1>Soak <span class='{word}'>{word}</span></h1>", f"<p class='dim'>{escape(about)}</p>"]
    parts += [f"<pre>{escape(each)}</pre>" for each in soaked.broken]
    parts += [_table(soaked.verdicts), *(f"<h2>{escape(name)}</h2>{chart(lines)}" for name, lines in _charts(soaked))]
    return document(f"Lakelog soak: {word}", parts)


def _table(shown: Sequence[SoakVerdict]) -> str:
    rows = "".join(
        f"<tr><td>{escape(each.name)}</td><td class='{'valid' if each.holds else 'invalid'}'>"
        f"{'holds' if each.holds else 'does not hold'}</td><td>{escape(each.asked)}</td>"
        f"<td class='n'>{escape(each.measured)}</td></tr>"
        for each in shown
    )
    head = "<tr><th></th><th>verdict</th><th>required</th><th class='n'>measured</th></tr>"
    return f"<table>{head}{rows}</table>"


def _charts(soaked: Soaked) -> list[tuple[str, Lines]]:
    taken, windows = soaked.taken, [each for each in soaked.windows if each.publish_p50 >= 0]
    mib = 2**20
    servers = sorted({name for each in taken for name in each.memory})
    groups = sorted({name for each in taken for name in each.lag})
    return [
        ("Resident memory, MiB", {n: [(each.at, each.memory.get(n, 0) / mib) for each in taken] for n in servers}),
        ("Dead tuples", {"all tables": [(each.at, each.dead) for each in taken]}),
        ("Hot disk, MiB", {n: [(each.at, getattr(each, n) / mib) for each in taken] for n in ("database", "wal")}),
        (
            "Object store in MiB (files are deleted a day later)",
            {"store": [(each.at, each.store / mib) for each in taken]},
        ),
        (
            "Waits, ms",
            {
                n.replace("_", " "): [(each.at, getattr(each, n)) for each in windows]
                for n in ("publish_p50", "publish_p99", "delivery_p99")
            },
        ),
        ("Speed of the processors, as a share of their best", {"speed": soaked.speed}),
        ("Lag, messages", {n: [(each.at, each.lag.get(n, 0)) for each in taken] for n in groups}),
    ]


def chart(lines: Lines) -> str:
    """Return an SVG chart with time on the x axis and a y axis that starts at 0."""
    seconds = max([1.0, *(at for points in lines.values() for at, _ in points)])
    most = max([1.0, *(much for points in lines.values() for _, much in points)])
    across, up = (WIDTH - LEFT - RIGHT) / seconds, (HEIGHT - 34) / most
    parts = [f"<svg viewBox='0 0 {WIDTH} {HEIGHT}' role='img'>", *_grid(seconds, across)]
    parts.append(
        f"<text x='{LEFT - 6}' y='18' text-anchor='end'>{f'{most:,.0f}' if most >= 100 else f'{most:.3g}'}</text>"
    )
    for number, (name, points) in enumerate(lines.items()):
        colour, y = _COLOURS[number % len(_COLOURS)], 42 + number * 17
        drawn = " ".join(f"{LEFT + at * across:.1f},{HEIGHT - 20 - much * up:.1f}" for at, much in points)
        parts.append(f"<polyline points='{drawn}' fill='none' stroke='{colour}' stroke-width='1.4'/>")
        parts.append(f"<rect x='{LEFT - 112}' y='{y - 9}' width='10' height='10' fill='{colour}'/>")
        parts.append(f"<text x='{LEFT - 98}' y='{y}'>{escape(name)}</text>")
    return "".join([*parts, "</svg>"])


def _grid(seconds: float, across: float) -> list[str]:
    step = next(each for each in (10, 30, 60, 300, 600, 1800, 3600, 1 << 30) if seconds / each <= 14)
    parts = []
    for at in range(0, int(seconds) + 1, step):
        x = LEFT + at * across
        parts.append(f"<line x1='{x:.1f}' x2='{x:.1f}' y1='8' y2='{HEIGHT - 18}' stroke='#9ca3af' opacity='.25'/>")
        parts.append(f"<text x='{x:.1f}' y='{HEIGHT - 5}' text-anchor='middle'>{at / 60:g} min</text>")
    return parts
