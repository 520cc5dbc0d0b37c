"""The chart of a run: throughput by second, faults as bars by kind, rebalances and redeliveries as ticks."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from prove.lab.report.summary import ReportedFault, RunTimeline

WIDTH, LEFT, RIGHT = 1150, 210, 10
CHART, BAR, GAP = 170, 15, 26
_LINES = (("published", "#2563eb"), ("delivered", "#d97706"), ("acked", "#059669"))


def drawing(timeline: RunTimeline, faults: Sequence[ReportedFault]) -> str:
    """Return an SVG element."""
    kinds = list(dict.fromkeys(each.kind for each in faults))
    length = max(len(timeline.published), 1)
    scale = (WIDTH - LEFT - RIGHT) / length
    height = CHART + GAP + 3 * BAR + BAR * len(kinds) + 40
    parts = [f"<svg viewBox='0 0 {WIDTH} {height}' role='img' aria-label='The run by second'>"]
    parts += _grid(length, scale, height)
    parts += _chart(timeline, scale)
    top = CHART + GAP
    parts += _ticks("redeliveries", [n for n, count in enumerate(timeline.redelivered) if count], top, scale, "#dc2626")
    parts += _ticks("rebalances", timeline.rebalances, top + BAR, scale, "#7c3aed")
    parts += _bars(faults, kinds, top + 2 * BAR + 6, scale)
    for name, at in (("healed", timeline.healed), ("drained", timeline.drained)):
        x = LEFT + at * scale
        parts.append(f"<line x1='{x:.1f}' x2='{x:.1f}' y1='0' y2='{height - 22}' stroke='#059669' opacity='.6'/>")
        parts.append(f"<text x='{x - 3:.1f}' y='10' text-anchor='end'>{name}</text>")
    return "".join([*parts, "</svg>"])


def _grid(length: int, scale: float, height: int) -> list[str]:
    step = next(each for each in (5, 10, 20, 30, 60, 300, 600, 1800, 3600, 7200, 1 << 30) if length / each <= 14)
    parts = []
    for second in range(0, length + 1, step):
        x = LEFT + second * scale
        parts.append(f"<line x1='{x:.1f}' x2='{x:.1f}' y1='14' y2='{height - 20}' stroke='#9ca3af' opacity='.25'/>")
        parts.append(f"<text x='{x:.1f}' y='{height - 6}' text-anchor='middle'>{second} s</text>")
    return parts


def _chart(timeline: RunTimeline, scale: float) -> list[str]:
    most = max([1, *timeline.published, *timeline.delivered, *timeline.acked])
    parts = [f"<text x='{LEFT - 6}' y='22' text-anchor='end'>{most:,} per second</text>"]
    for number, (name, colour) in enumerate(_LINES):
        counts = getattr(timeline, name)
        points = " ".join(
            f"{LEFT + (second + 0.5) * scale:.1f},{CHART - count / most * (CHART - 18):.1f}"
            for second, count in enumerate(counts)
        )
        parts.append(f"<polyline points='{points}' fill='none' stroke='{colour}' stroke-width='1.4'/>")
        y = 60 + number * 18
        parts.append(f"<rect x='{LEFT - 92}' y='{y - 9}' width='10' height='10' fill='{colour}'/>")
        parts.append(f"<text x='{LEFT - 78}' y='{y}'>{name}</text>")
    return parts


def _ticks(name: str, times: Sequence[float], top: int, scale: float, colour: str) -> list[str]:
    parts = [f"<text x='{LEFT - 6}' y='{top + BAR - 4}' text-anchor='end'>{name}</text>"]
    for at in times:
        x = LEFT + at * scale
        parts.append(f"<rect x='{x:.1f}' y='{top + 2}' width='1.6' height='{BAR - 4}' fill='{colour}'/>")
    return parts


def _bars(faults: Sequence[ReportedFault], kinds: Sequence[str], top: int, scale: float) -> list[str]:
    parts = []
    for number, kind in enumerate(kinds):
        y = top + number * BAR
        parts.append(f"<text x='{LEFT - 6}' y='{y + BAR - 4}' text-anchor='end'>{escape(kind)}</text>")
        for each in (fault for fault in faults if fault.kind == kind):
            x, width = LEFT + each.began * scale, max(2.0, (each.ended - each.began) * scale)
            colour = "#b91c1c" if each.counts else "#9ca3af"
            title = f"{each.kind}: {each.about}, {each.began:.1f} s to {each.ended:.1f} s"
            parts.append(
                f"<rect x='{x:.1f}' y='{y + 3}' width='{width:.1f}' height='{BAR - 6}' rx='2' fill='{colour}' "
                f"opacity='.85'><title>{escape(title)}</title></rect>"
            )
    return parts
