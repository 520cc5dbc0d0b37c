"""The benchmarks run and print what they promise. At CI size their figures mean nothing, and are not checked."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_NAMES = {
    "publish-objects",
    "publish-columns",
    "publish-single",
    "fetch-arrow",
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
    "spark-write",
    "spark-latency",
    "spark-idle",
}
_RATIOS = {"copy", "insert", "jobs", "redis", "kafka", "share", "parquet", "undisturbed"}
_CONDITIONS = {"cores", "fsync_us", "postgresql", "messages", "corpus_ratio", "rounds", "python"}


def test_the_list_names_every_benchmark() -> None:
    lines = _bench("--list").stdout.splitlines()
    assert {line.split()[0] for line in lines} == _NAMES


def test_an_unknown_benchmark_is_refused_with_the_way_out() -> None:
    done = _bench("no-such-benchmark", check=False)
    assert done.returncode == 2
    assert "--list" in done.stderr


@pytest.mark.timeout(180)
def test_a_comparison_reports_the_cpu_time_of_both_checkouts() -> None:
    options = ("--size", "ci", "--messages", "20000", "--rounds", "1")
    found = json.loads(_bench("publish-objects", "--against", str(_ROOT), *options).stdout)
    assert set(found) == {"name", "here_us", "there_us", "ratio", "each_ratio"}
    assert found["here_us"] > 0
    assert found["there_us"] > 0
    assert found["each_ratio"] == [found["ratio"]]


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("name", "peers"), [("publish-objects", {"copy", "insert"}), ("disk", {"insert"})])
def test_json_is_one_object_of_the_promised_shape(name: str, peers: set[str]) -> None:
    report = json.loads(_bench(name, "--json", "--size", "ci", "--messages", "20000").stdout)
    assert set(report) == {"name", "unit", "ours", "peers", "ratios", "conditions"}
    assert report["name"] == name
    assert report["ours"] > 0
    assert set(report["peers"]) == set(report["ratios"]) == peers <= _RATIOS
    assert set(report["conditions"]) >= _CONDITIONS
    for peer, theirs in report["peers"].items():
        better = theirs / report["ours"] if name == "disk" else report["ours"] / theirs
        assert report["ratios"][peer] == pytest.approx(better, rel=0.01)


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("name", "peers", "less_is_better"),
    [
        ("consume-objects", {"jobs"}, False),
        ("consume-arrow", {"jobs"}, False),
        ("consume-handler", {"redis"}, False),
        ("consume-handler-delivery", set(), False),
        ("consume-handler-sync", set(), False),
        ("consume-default", set(), False),
        ("delivery-latency", {"redis"}, True),
        ("fan-out", {"redis"}, True),
        ("consume-held-snapshot", {"undisturbed"}, False),
        ("idle", set(), True),
    ],
)
def test_the_cost_of_groups_is_measured_against_a_peer_in_the_same_run(
    name: str, peers: set[str], less_is_better: bool
) -> None:
    """No benchmark counts a message that was lost or duplicated: that ends the run."""
    report = json.loads(_bench(name, "--json", "--size", "ci").stdout)
    assert report["name"] == name and report["ours"] > 0
    expected = peers - (set() if shutil.which("redis-server") else {"redis"})
    assert set(report["peers"]) == set(report["ratios"]) == expected
    for peer, theirs in report["peers"].items():
        better = theirs / report["ours"] if less_is_better else report["ours"] / theirs
        assert report["ratios"][peer] == pytest.approx(better, rel=0.05, abs=0.005)


def _bench(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    argv = [str(_ROOT / "scripts" / "bench"), *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=170)
    assert not check or done.returncode == 0, done.stderr[-2000:]
    return done
