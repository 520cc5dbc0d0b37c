"""The alert rules and dashboards in deploy/, evaluated by Prometheus' own tools.

A rule must fire for the series of its fault, and stay quiet for those of an installation that works.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from lakelog.model.stuck import StuckCode
from lakelog.server.group_metrics import GROUP_METRICS
from lakelog.server.metrics import METRICS
from scripts.monitoring import ALERTS, DASHBOARDS, RULES, Alert
from tests.unit.docs.markdown import ROOT

SERVER = '{job="lakelog",instance="a"}'
GROUP = '{job="lakelog-groups",instance="a",environment="prod",group="billing",topic="orders"'
FAULTS: dict[str, dict[str, tuple[str, str]]] = {
    "LakelogServerDown": {f"up{SERVER}": ("1 0x20", "1x20")},
    "LakelogServerErrors": {
        'lakelog_http_requests_total{job="lakelog",instance="a",route="publish",status="200"}': ("0+90x20", "0+100x20"),
        'lakelog_http_requests_total{job="lakelog",instance="a",route="publish",status="503"}': ("0+10x20", "0+0x20"),
    },
    "LakelogPublishSlow": {
        'lakelog_publish_seconds_bucket{job="lakelog",instance="a",le="1"}': ("0+90x20", "0+100x20"),
        'lakelog_publish_seconds_bucket{job="lakelog",instance="a",le="2.5"}': ("0+100x20", "0+100x20"),
        'lakelog_publish_seconds_bucket{job="lakelog",instance="a",le="+Inf"}': ("0+100x20", "0+100x20"),
    },
    "LakelogMemoryNearLimit": {
        f"lakelog_memory_used_bytes{SERVER}": ("95x20", "50x20"),
        f"lakelog_memory_limit_bytes{SERVER}": ("100x20", "100x20"),
    },
    "LakelogCellUnreachable": {f"lakelog_cells_unreachable{SERVER}": ("1x20", "0 1 0x18")},
    "LakelogMessagesLost": {f"lakelog_lost_messages_total{SERVER}": ("0x10 7x10", "0x20")},
    "LakelogGroupStuck": {
        f'lakelog_group_stuck_partitions{GROUP},code="crash_loop"}}': ("2x20", "_x20"),
        f'lakelog_group_stuck_partitions{GROUP},code="paused"}}': ("2x20", "2x20"),
    },
    "LakelogGroupBehind": {f"lakelog_group_oldest_seconds{GROUP}}}": ("1000x20", "60x20")},
    "LakelogDeadLettersGrow": {
        # The group has another home from the tenth minute on.
        'lakelog_group_dead_letters{job="lakelog-groups",instance="a",group="billing"}': ("3x10 _x10", "3x10 _x10"),
        'lakelog_group_dead_letters{job="lakelog-groups",instance="b",group="billing"}': ("_x10 5x10", "_x10 3x10"),
    },
}
"""The series of each alert's fault, one value a minute: with the fault, and without it."""


def promtool(folder: Path, *arguments: str) -> None:
    done = subprocess.run(["promtool", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("fires", [True, False], ids=["fault", "clean"])
@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_an_alert_fires_in_its_fault_only(alert: Alert, fires: bool, tmp_path: Path) -> None:
    name = alert.name
    series = [{"series": each, "values": values[0 if fires else 1]} for each, values in FAULTS[name].items()]
    checks = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": series,
                "promql_expr_test": [
                    {
                        "expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}})',
                        "eval_time": "12m",
                        "exp_samples": [{"labels": "{}", "value": 1}] if fires else [],
                    }
                ],
            }
        ],
    }
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(checks))
    promtool(tmp_path, "test", "rules", "test.yaml")


def test_every_query_of_rules_and_dashboards_is_valid_and_uses_our_metrics(tmp_path: Path) -> None:
    queries = [alert.expr for alert in ALERTS]
    for path in sorted(DASHBOARDS.glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            queries += [target["expr"].replace("$__rate_interval", "1m") for target in panel["targets"]]
    recorded = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(queries)]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": recorded}]}))
    promtool(tmp_path, "check", "rules", "rules.yaml")
    known = METRICS | GROUP_METRICS
    used = {name.removesuffix("_bucket") for query in queries for name in re.findall(r"\blakelog_\w+", query)}
    assert used <= known.keys()
    assert used == known.keys(), "each metric has a panel"


def test_each_alert_and_each_cause_has_a_runbook() -> None:
    page = (ROOT / "docs/howto/respond-to-alerts.md").read_text()
    headings = re.findall(r"^### (\S+)$", page, re.MULTILINE)
    assert headings == [*(alert.name for alert in ALERTS), *StuckCode]
