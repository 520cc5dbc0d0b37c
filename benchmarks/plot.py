"""Draws saved reports as one SVG: ours and the peers of each benchmark, with the conditions and the command.

`scripts/bench NAME --save` saves a report, and `scripts/bench --plot` draws all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from html import escape
from pathlib import Path

import msgspec

from benchmarks.harness import OURS, Benchmark, BenchmarkReport

FOLDER = Path(__file__).parent / "figures"
DRAWING = FOLDER / "figures.svg"

_WIDTH, _LEFT, _BAR, _ROW, _GAP = 860, 150, 440, 22, 34
_OURS, _PEER, _TEXT, _FAINT = "#1f6feb", "#9aa4b2", "#1f2328", "#59636e"
_FONT = "font-family='system-ui, sans-serif'"
_SHOWN = ("cores", "fsync_us", "postgresql", "redis", "kafka", "spark")
"""The conditions that follow the load, if the report has them and they are not zero."""


def save(report: BenchmarkReport) -> Path:
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{report.name}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(asdict(report)), indent=1) + b"\n")
    return path


def saved() -> list[BenchmarkReport]:
    return [msgspec.json.decode(path.read_bytes(), type=BenchmarkReport) for path in sorted(FOLDER.glob("*.json"))]


def draw(reports: Sequence[BenchmarkReport], benchmarks: Mapping[str, Benchmark]) -> str:
    """Return the SVG of these reports, one below the other."""
    parts: list[str] = []
    top = 10
    for report in reports:
        lines, top = _group(report, benchmarks[report.name], top)
        parts += lines
    head = f"<svg xmlns='http://www.w3.org/2000/svg' width='{_WIDTH}' height='{top}' viewBox='0 0 {_WIDTH} {top}'>"
    background = f"<rect width='{_WIDTH}' height='{top}' fill='#ffffff'/>"
    return "\n".join((head, background, *parts, "</svg>")) + "\n"


def command(report: BenchmarkReport) -> str:
    """Return the command that makes the report again."""
    given = report.conditions
    sizes = [f"--{name} {given[name]:g}" for name in ("rounds", "messages", "seconds") if given[name]]
    return " ".join(("scripts/bench", report.name, "--size", given["size"], *sizes, "--save"))


def _group(report: BenchmarkReport, benchmark: Benchmark, top: int) -> tuple[list[str], int]:
    """Return the elements of one report, and where the next one begins."""
    better = "shorter is better" if benchmark.less_is_better else "longer is better"
    lines = [
        _text(10, top + 16, report.name, size=15, weight="bold"),
        _text(10, top + 33, f"{benchmark.about}; {report.unit}, {better}", fill=_FAINT),
    ]
    figures = {OURS: report.ours, **report.peers}
    longest = max(figures.values())
    at = top + 42
    for name, figure in figures.items():
        width = max(1, round(_BAR * figure / longest))
        shown = f"{figure:,.0f}" if figure >= 100 else f"{figure:,.2f}"
        ratio = "" if name == OURS else f"   Lakelog {report.ratios[name]:.2f} x"
        label = "Lakelog" if name == OURS else name
        fill = _OURS if name == OURS else _PEER
        lines += [
            _text(_LEFT - 8, at + 13, label, anchor="end", weight="bold" if name == OURS else "normal"),
            f"<rect x='{_LEFT}' y='{at}' width='{width}' height='{_ROW - 6}' fill='{fill}'/>",
            _text(_LEFT + width + 8, at + 13, shown + ratio),
        ]
        at += _ROW
    lines.append(_text(_LEFT, at + 12, command(report), fill=_FAINT, size=11))
    lines.append(_text(_LEFT, at + 27, _conditions(report), fill=_FAINT, size=11))
    return lines, at + 27 + _GAP


def _conditions(report: BenchmarkReport) -> str:
    found = {"load_before": report.conditions["load_before"]}
    found |= {name: report.conditions[name] for name in _SHOWN if report.conditions.get(name)}
    return " · ".join(f"{name} {text:,}" if isinstance(text, int) else f"{name} {text}" for name, text in found.items())


def _text(
    x: int, y: int, text: str, *, size: int = 12, fill: str = _TEXT, anchor: str = "start", weight: str = "normal"
) -> str:
    style = f"font-size='{size}' fill='{fill}' text-anchor='{anchor}' font-weight='{weight}' xml:space='preserve'"
    return f"<text x='{x}' y='{y}' {_FONT} {style}>{escape(text)}</text>"
