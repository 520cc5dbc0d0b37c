"""Reads the figures that the servers page shows from a server's metrics."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from lakelog.model.display import show_size

_SAMPLE = re.compile(r"^(lakelog_\w+)(?:\{[^}]*\})? ([0-9.eE+-]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure of a server since its start.

    Attributes:
        label: The meaning of the figure.
        text: The figure with its unit.
        is_alarm: Whether the figure means a problem.
    """

    label: str
    text: str
    is_alarm: bool = False


def sums_of(metrics: str) -> dict[str, float]:
    """Return the sum of the samples of each metric, over all labels."""
    sums: dict[str, float] = {}
    for name, number in _SAMPLE.findall(metrics):
        sums[name] = sums.get(name, 0.0) + float(number)
    return sums


def figures_of(metrics: str) -> list[Figure]:
    """Return the figures of a server, from its page of metrics; none without metrics."""
    sums = sums_of(metrics)
    if not sums:
        return []
    used, limit = sums.get("lakelog_memory_used_bytes", 0.0), sums.get("lakelog_memory_limit_bytes", 0.0)
    lost, unreachable = sums.get("lakelog_lost_messages_total", 0.0), sums.get("lakelog_cells_unreachable", 0.0)
    return [
        Figure(label="Published messages", text=_number(sums.get("lakelog_publish_messages_total", 0.0))),
        Figure(label="Fetched messages", text=_number(sums.get("lakelog_fetch_messages_total", 0.0))),
        Figure(label="Leased messages", text=_number(sums.get("lakelog_leased_messages_total", 0.0))),
        Figure(label="Calls answered", text=_number(sums.get("lakelog_http_requests_total", 0.0))),
        Figure(label="Calls being served", text=_number(sums.get("lakelog_http_in_flight", 0.0))),
        Figure(label="Mean commit", text=_mean(sums, "lakelog_commit_seconds_total", "lakelog_commits_total")),
        Figure(label="Commit conflicts", text=_number(sums.get("lakelog_commit_conflicts_total", 0.0))),
        Figure(
            label="Mean wait for a connection",
            text=_mean(sums, "lakelog_connection_wait_seconds_total", "lakelog_connection_waits_total"),
        ),
        Figure(
            label="Mean delay of the event loop",
            text=_mean(sums, "lakelog_loop_delay_seconds_sum", "lakelog_loop_delay_seconds_count"),
        ),
        Figure(
            label=f"Memory for calls, of {show_size(int(limit))}",
            text=show_size(int(used)),
            is_alarm=limit > 0 and used > 0.9 * limit,
        ),
        Figure(label="Unreachable cells", text=_number(unreachable), is_alarm=unreachable > 0),
        Figure(label="Messages lost by failovers", text=_number(lost), is_alarm=lost > 0),
    ]


def _number(value: float) -> str:
    return f"{int(value):,}"


def _mean(sums: Mapping[str, float], seconds: str, count: str) -> str:
    number = sums.get(count, 0.0)
    return f"{1000 * sums.get(seconds, 0.0) / number:.1f} ms" if number else "–"
