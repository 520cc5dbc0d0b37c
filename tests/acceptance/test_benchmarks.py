"""The benchmarks run and print what they promise. At CI size their figures mean nothing, and are not checked."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest
from _pytest.mark import ParameterSet

from benchmarks import parts, plot
from benchmarks.__main__ import known

_ROOT = Path(__file__).parents[2]
_NAMES = {
    "publish-objects",
    "publish-columns",
    "publish-single",
    "outbox-latency",
    "outbox-open-transaction",
    "outbox-bulk",
    "delayed-waiting",
    "publish-latency",
    "fetch-arrow",
    "fetch-cold",
    "read-arrow",
    "fetch-objects",
    "held-snapshot",
    "disk",
    "consume-objects",
    "consume-arrow",
    "consume-handler",
    "consume-handler-delivery",
    "consume-handler-sync",
    "consume-default",
    "delivery-latency",
    "fan-out",
    "consume-held-snapshot",
    "idle",
    "spark-read",
    "spark-count",
    "spark-typed",
    "spark-write",
    "spark-s3",
    "spark-latency",
    "spark-idle",
}
_RATIOS = {"copy", "insert", "jobs", "redis", "kafka", "share", "parquet", "pyarrow", "scan", "undisturbed"}
_CONDITIONS = {"cores", "fsync_us", "postgresql", "messages", "corpus_ratio", "rounds", "python"}


def _slow(*values: object) -> ParameterSet:
    return pytest.param(*values, marks=pytest.mark.nightly)


def test_the_list_names_every_benchmark() -> None:
    lines = _bench("--list").stdout.splitlines()
    assert {line.split()[0] for line in lines} == _NAMES


def test_an_unknown_benchmark_is_refused_with_the_way_out() -> None:
    done = _bench("no-such-benchmark", check=False)
    assert done.returncode == 2
    assert "--list" in done.stderr


def test_the_drawing_shows_every_saved_report_with_its_command_and_conditions() -> None:
    reports = plot.saved()
    assert reports
    drawn = plot.draw(reports, known())
    assert drawn == plot.DRAWING.read_text(), "run scripts/bench --plot"
    texts = [element.text or "" for element in ElementTree.fromstring(drawn).iter() if element.tag.endswith("text")]
    for report in reports:
        assert plot.command(report) in texts
        assert {"Lakelog", *report.peers} <= set(texts)
        assert any(text.startswith(f"load_before {report.conditions['load_before']}") for text in texts)


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_a_comparison_reports_the_cpu_time_of_both_checkouts() -> None:
    options = ("--size", "ci", "--messages", "20000", "--rounds", "1")
    found = json.loads(_bench("publish-objects", "--against", str(_ROOT), *options).stdout)
    assert set(found) == {"name", "unit", "here", "there", "ratio", "each_ratio"}
    assert found["here"] > 0
    assert found["there"] > 0
    assert found["each_ratio"] == [found["ratio"]]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("name", "peers"), [_slow("publish-objects", {"copy", "insert", "redis", "kafka"}), ("disk", {"insert"})]
)
def test_json_is_one_object_of_the_promised_shape(name: str, peers: set[str]) -> None:
    report = json.loads(_bench(name, "--json", "--size", "ci", "--messages", "20000").stdout)
    assert set(report) == {"name", "unit", "ours", "peers", "ratios", "conditions"}
    assert report["name"] == name
    assert report["ours"] > 0
    assert set(report["peers"]) == set(report["ratios"]) == _installed(peers) <= _RATIOS
    assert set(report["conditions"]) >= _CONDITIONS
    for peer, theirs in report["peers"].items():
        better = theirs / report["ours"] if name == "disk" else report["ours"] / theirs
        assert report["ratios"][peer] == pytest.approx(better, rel=0.01)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("name", "peers", "less_is_better"),
    [
        _slow("publish-latency", {"insert", "ours_without_server"}, True),
        _slow("consume-objects", {"jobs"}, False),
        _slow("consume-arrow", {"jobs"}, False),
        _slow("consume-handler", {"redis"}, False),
        _slow("consume-handler-delivery", set(), False),
        _slow("consume-handler-sync", set(), False),
        _slow("consume-default", set(), False),
        _slow("delivery-latency", {"redis"}, True),
        _slow("fan-out", {"redis"}, True),
        _slow("consume-held-snapshot", {"undisturbed"}, False),
        _slow("idle", set(), True),
        _slow("outbox-latency", {"refused", "other-cluster"}, True),
        _slow("outbox-open-transaction", {"undisturbed"}, True),
        _slow("outbox-bulk", set(), False),
        _slow("fetch-cold", set(), True),
        _slow("delayed-waiting", {"undisturbed"}, False),
    ],
)
def test_a_cost_is_measured_against_a_peer_in_the_same_run(name: str, peers: set[str], less_is_better: bool) -> None:
    """No benchmark counts a message that was lost or duplicated: that ends the run."""
    report = json.loads(_bench(name, "--json", "--size", "ci").stdout)
    assert report["name"] == name and report["ours"] > 0
    assert set(report["peers"]) == set(report["ratios"]) == _installed(peers)
    for peer, theirs in report["peers"].items():
        better = theirs / report["ours"] if less_is_better else report["ours"] / theirs
        assert report["ratios"][peer] == pytest.approx(better, rel=0.05, abs=0.005)


def _installed(peers: set[str]) -> set[str]:
    """Leave out the peers that this checkout lacks. `scripts/install` fetches Kafka only on request."""
    there = {"redis": shutil.which("redis-server") is not None, "kafka": parts.is_installed("kafka")}
    return {peer for peer in peers if there.get(peer, True)}


def _bench(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    argv = [str(_ROOT / "scripts" / "bench"), *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=280)
    assert not check or done.returncode == 0, done.stderr[-2000:]
    return done
