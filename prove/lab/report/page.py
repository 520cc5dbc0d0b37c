"""The report as one page of HTML: a chart of the run, the verdicts, and each counter-example with its trace.

It needs no other file and no script. All texts are untrusted, and are escaped.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from prove.lab.report.drawing import drawing
from prove.lab.report.summary import JudgedInvariant, ReportedFault, ReportSummary

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 1180px; padding: 0 1rem; color: #1b1f24;
  background: #fff }
h1 { font-size: 1.5rem; margin: 0 0 .2rem } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem }
.valid { color: #0a6b2d } .invalid { color: #b00020; font-weight: 600 } .unknown { color: #8a5a00; font-weight: 600 }
.not { color: #6b7280 }
table { border-collapse: collapse; width: 100% } td, th { text-align: left; padding: .25rem .6rem .25rem 0;
  border-bottom: 1px solid #e5e7eb; vertical-align: top } td.n, th.n { text-align: right;
  font-variant-numeric: tabular-nums }
pre { background: #f6f8fa; padding: .7rem; overflow-x: auto; font-size: 12.5px; line-height: 1.4 }
details { margin: .4rem 0 } summary { cursor: pointer } .dim { color: #6b7280 }
svg { width: 100%; height: auto; display: block } svg text { font: 11px system-ui, sans-serif; fill: #4b5563 }
@media (prefers-color-scheme: dark) { body { background: #14171a; color: #e6e8ea } td, th { border-color: #2c3238 }
  pre { background: #1d2226 } .valid { color: #5fd38a } .invalid { color: #ff7a8a } .unknown { color: #ffc46b }
  svg text { fill: #a6afb8 } .dim, .not { color: #98a1ab } }
"""


def page(summary: ReportSummary) -> str:
    """Return the whole page."""
    title = f"Lakelog proof, {summary.size}, seed {summary.seed}: {summary.verdict}"
    parts = [
        f"<h1>Proof <span class='{_class(summary.verdict)}'>{escape(summary.verdict)}</span></h1>",
        f"<p class='dim'>{escape(summary.size)}, seed {summary.seed}. "
        f"Repeat with: <code>{escape(summary.repeat)}</code></p>",
        _notes(summary.notes),
        "<h2>The run</h2>",
        drawing(summary.timeline, summary.faults),
        "<h2>Figures</h2>",
        _figures(summary),
        "<h2>Invariants</h2>",
        _invariants(summary.invariants),
        *(_examples(each) for each in summary.invariants if each.found),
        "<h2>Faults</h2>",
        _faults(summary.faults),
    ]
    return document(title, parts)


def document(title: str, parts: Iterable[str]) -> str:
    """Return a page of these parts, in the style of all reports."""
    return (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{escape(title)}</title>"
        f"<meta name='viewport' content='width=device-width'><style>{_STYLE}</style></head>"
        f"<body>{''.join(parts)}</body></html>"
    )


def _class(verdict: str) -> str:
    return escape(verdict.split(" ")[0], quote=True)


def _notes(notes: Iterable[str]) -> str:
    items = "".join(f"<li><pre>{escape(each)}</pre></li>" for each in notes)
    return f"<h2>Problems</h2><ul>{items}</ul>" if items else ""


def _figures(summary: ReportSummary) -> str:
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td class='n'>{number:,.5g}</td></tr>"
        if number != int(number)
        else f"<tr><td>{escape(name)}</td><td class='n'>{int(number):,}</td></tr>"
        for name, number in summary.figures.items()
    )
    return f"<table>{rows}</table>"


def _invariants(judged: Iterable[JudgedInvariant]) -> str:
    rows = "".join(
        f"<tr><td>{escape(each.name)}</td><td class='{_class(each.verdict)}'>{escape(each.verdict)}</td>"
        f"<td>{escape(each.says)}{_doubts(each)}</td><td class='n'>{each.rows:,}</td>"
        f"<td class='n'>{each.seconds:.2f}</td></tr>"
        for each in judged
    )
    head = "<tr><th></th><th>verdict</th><th>statement</th><th class='n'>rows</th><th class='n'>seconds</th></tr>"
    return f"<table>{head}{rows}</table>"


def _doubts(judged: JudgedInvariant) -> str:
    return "".join(f"<br><span class='unknown'>{escape(each)}</span>" for each in judged.doubts[:3])


def _examples(judged: JudgedInvariant) -> str:
    parts = [f"<h2>{escape(judged.name)}: {len(judged.found)} counter-examples</h2>"]
    for each in judged.found:
        calls = f" <span class='dim'>[{escape(', '.join(each.calls))}]</span>" if each.calls else ""
        trace = f"<pre>{escape(chr(10).join(each.trace))}</pre>" if each.trace else ""
        parts.append(f"<details open><summary>{escape(each.what)}{calls}</summary>{trace}</details>")
    return "".join(parts)


def _faults(faults: Iterable[ReportedFault]) -> str:
    rows = "".join(
        f"<tr><td class='n'>{each.began:.1f}</td><td class='n'>{each.ended - each.began:.1f}</td>"
        f"<td>{escape(each.kind)}</td><td>{escape(each.about)}</td>"
        f"<td class='{'valid' if each.counts else 'not'}'>{_signs(each)}</td></tr>"
        for each in faults
    )
    head = "<tr><th class='n'>at, s</th><th class='n'>for, s</th><th>kind</th><th>target</th><th>shown by</th></tr>"
    return f"<table>{head}{rows}</table>"


def _signs(fault: ReportedFault) -> str:
    shown = [f"{count:,} x {escape(sign)}" for sign, count in fault.signs.items() if count]
    return ", ".join(shown) or "without effect"
