"""Generates the alert rules and dashboards in deploy/ from the tables of metrics; `--check` fails if they differ.

A dashboard has a panel for each metric, whose description is the help text of the metric.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from lakelog.server.group_metrics import GROUP_METRICS
from lakelog.server.metrics import METRICS

ROOT = Path(__file__).resolve().parent.parent
RULES = ROOT / "deploy/prometheus/lakelog.rules.yaml"
DASHBOARDS = ROOT / "deploy/grafana"
RUNBOOKS = "https://lakelog.example/howto/respond-to-alerts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """An alert rule.

    Attributes:
        expr: The condition in PromQL. A condition on a rate is true for a while after its cause.
        lasts: How long the condition must be true, as Prometheus writes it; empty if one moment is enough.
        severity: `page` for what needs a person now, otherwise `ticket`.
        summary: The problem in one sentence, with the labels and the value of the series as Prometheus's templates.
    """

    name: str
    expr: str
    lasts: str = ""
    severity: str
    summary: str


STUCK = "crash_loop|damaged_segment|hung_handler|key_blocked|no_member|no_position|slow_owner|window_full"
"""The causes that do not end by themselves. A pause is meant, and the cells have an alert of their own."""

ALERTS = (
    Alert(
        name="LakelogServerDown",
        expr='up{job=~"lakelog.*"} == 0',
        lasts="1m",
        severity="page",
        summary="Server {{ $labels.instance }} does not respond.",
    ),
    Alert(
        name="LakelogServerErrors",
        expr='sum without (instance, route, status) (rate(lakelog_http_requests_total{status=~"5.."}[5m]))'
        " / sum without (instance, route, status) (rate(lakelog_http_requests_total[5m])) > 0.01",
        lasts="5m",
        severity="page",
        summary="Servers answer {{ $value | humanizePercentage }} of the calls with an error of their own.",
    ),
    Alert(
        name="LakelogPublishSlow",
        expr="histogram_quantile(0.99, sum without (instance) (rate(lakelog_publish_seconds_bucket[5m]))) > 1",
        lasts="5m",
        severity="ticket",
        summary="The slowest 1 % of publish calls take {{ $value | humanizeDuration }} or more.",
    ),
    Alert(
        name="LakelogMemoryNearLimit",
        expr="lakelog_memory_used_bytes / lakelog_memory_limit_bytes > 0.9",
        lasts="5m",
        severity="ticket",
        summary="Server {{ $labels.instance }} uses {{ $value | humanizePercentage }} of its memory for calls.",
    ),
    Alert(
        name="LakelogCellUnreachable",
        expr="max without (instance) (lakelog_cells_unreachable) > 0",
        lasts="1m",
        severity="page",
        summary="{{ $value }} cells do not respond.",
    ),
    Alert(
        name="LakelogMessagesLost",
        expr="sum without (instance) (increase(lakelog_lost_messages_total[1h])) > 0",
        severity="page",
        summary="A failover lost acknowledged messages.",
    ),
    Alert(
        name="LakelogGroupStuck",
        expr=f'max without (instance) (lakelog_group_stuck_partitions{{code=~"{STUCK}"}}) > 0',
        lasts="10m",
        severity="page",
        summary="Group {{ $labels.group }} is stuck in {{ $value }} partitions of {{ $labels.topic }}: "
        "{{ $labels.code }}.",
    ),
    Alert(
        name="LakelogGroupBehind",
        expr="max without (instance) (lakelog_group_oldest_seconds) > 900",
        lasts="5m",
        severity="ticket",
        summary="Group {{ $labels.group }} is {{ $value | humanizeDuration }} behind in {{ $labels.topic }}.",
    ),
    Alert(
        name="LakelogDeadLettersGrow",
        expr="max without (instance) (lakelog_group_dead_letters)"
        " - max without (instance) (lakelog_group_dead_letters offset 5m) > 0",
        severity="ticket",
        summary="Group {{ $labels.group }} has {{ $value }} more dead letters.",
    ),
)


def rules(scale: float = 1) -> str:
    """Return the file of alert rules.

    Args:
        scale: A factor for all times, so that a test does not have to wait for minutes.
    """

    def rule(alert: Alert) -> dict[str, object]:
        return {
            "alert": alert.name,
            "expr": scaled(alert.expr, scale),
            **({"for": scaled(alert.lasts, scale)} if alert.lasts else {}),
            "labels": {"severity": alert.severity},
            "annotations": {"summary": alert.summary, "runbook_url": f"{RUNBOOKS}#{alert.name.lower()}"},
        }

    found = {"groups": [{"name": "lakelog", "rules": [rule(alert) for alert in ALERTS]}]}
    return _NOTE + yaml.safe_dump(found, sort_keys=False, width=120, allow_unicode=True)


def scaled(text: str, scale: float) -> str:
    """Return an expression of Prometheus with its durations multiplied by `scale`."""
    if scale == 1:
        return text
    seconds = {"m": 60, "h": 3600}
    return re.sub(r"\b(\d+)([mh])\b", lambda found: f"{round(int(found[1]) * seconds[found[2]] * scale)}s", text)


_NOTE = "# Generated by `python -m scripts.monitoring` from the metrics of the servers.\n"


# Dashboards -------------------------------------------------------------------------------------------------------


def dashboard(title: str, uid: str, metrics: Mapping[str, str], selector: str) -> str:
    """Return a dashboard for Grafana with a panel for each of these metrics.

    Args:
        title: The title of the dashboard.
        uid: Its permanent id.
        metrics: The help texts by name of the metric.
        selector: The labels that the variables of the dashboard choose.
    """
    panels = [_panel(number, name, text, selector) for number, (name, text) in enumerate(metrics.items())]
    found = {
        "uid": uid,
        "title": title,
        "tags": ["lakelog"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [_DATASOURCE, *map(_variable, _VARIABLES[selector])]},
        "panels": panels,
    }
    return json.dumps(found, indent=1) + "\n"


_DATASOURCE = {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"}
_SERVERS = 'instance=~"$instance"'
_GROUPS = 'group=~"$group"'
_VARIABLES = {
    _SERVERS: (("instance", "lakelog_http_in_flight"),),
    _GROUPS: (("group", "lakelog_group_members"),),
}
_UNITS = {"seconds": "s", "bytes": "bytes"}


def _variable(variable: tuple[str, str]) -> dict[str, object]:
    label, metric = variable
    return {
        "name": label,
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": f"label_values({metric}, {label})",
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
        "allValue": ".*",
    }


def panel_queries(name: str, selector: str) -> dict[str, str]:
    """Return the queries of the panel of a metric, by the text of their legend."""
    by = _BY.get(name, _GROUP_AND_TOPIC if selector == _GROUPS else ())
    labels = "" if by == _SERVER and selector == _GROUPS else selector
    if name.endswith("_total"):
        query = f"rate({name}{{{labels}}}[$__rate_interval])"
        return {_legend(by): f"sum by ({', '.join(by)}) ({query})"}
    if name.endswith("_seconds") and selector == _SERVERS:
        buckets = f"sum by (le) (rate({name}_bucket{{{labels}}}[$__rate_interval]))"
        return {f"p{share}": f"histogram_quantile({share / 100}, {buckets})" for share in (50, 99)}
    return {_legend(by or _SERVER): f"max by ({', '.join(by or _SERVER)}) ({name}{{{labels}}})"}


def _legend(labels: tuple[str, ...]) -> str:
    return " ".join(f"{{{{{label}}}}}" for label in labels)


_SERVER = ("instance",)
_GROUP = ("group",)
_GROUP_AND_TOPIC = ("group", "topic")
_BY: dict[str, tuple[str, ...]] = {
    "lakelog_answers_total": ("verb", "outcome"),
    "lakelog_forwarded_calls_total": ("outcome",),
    "lakelog_http_requests_total": ("route", "status"),
    "lakelog_commits_total": ("kind",),
    "lakelog_commit_seconds_total": ("kind",),
    "lakelog_commit_items_total": ("kind",),
    "lakelog_group_stuck_partitions": ("group", "topic", "code"),
    "lakelog_group_members": _GROUP,
    "lakelog_group_dead_letters": _GROUP,
    "lakelog_group_rebalances_total": _GROUP,
    "lakelog_group_rebalancing_seconds_total": _GROUP,
    "lakelog_group_series_left_out": _SERVER,
}
"""The labels by which a panel is divided, where they are not those of most metrics of the dashboard."""


def _panel(number: int, name: str, text: str, selector: str) -> dict[str, object]:
    unit = next((unit for word, unit in _UNITS.items() if word in name.split("_")), "short")
    title = name.removeprefix("lakelog_").removesuffix("_total").replace("_", " ")
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": title[0].upper() + title[1:] + (" per second" if name.endswith("_total") else ""),
        "description": f"{text} `{name}`",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": {"h": 8, "w": 8, "x": number % 3 * 8, "y": number // 3 * 8},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + place), "expr": query, "legendFormat": legend}
            for place, (legend, query) in enumerate(panel_queries(name, selector).items())
        ],
    }


def files() -> dict[Path, str]:
    """Return the content of all generated files."""
    return {
        RULES: rules(),
        DASHBOARDS / "lakelog-servers.json": dashboard("Lakelog: servers", "lakelog-servers", METRICS, _SERVERS),
        DASHBOARDS / "lakelog-groups.json": dashboard("Lakelog: groups", "lakelog-groups", GROUP_METRICS, _GROUPS),
    }


def main() -> int:
    """Write the files, or compare them with `--check`."""
    stale = [path for path, text in files().items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is out of date. Run `python -m scripts.monitoring`.", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files()[path])
    return 0


if __name__ == "__main__":
    sys.exit(main())
