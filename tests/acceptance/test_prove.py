"""The proof as a person runs it, small: real servers under faults, and simulated ones, without findings."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TIMED = {"L3", "L4", "L5", "L7"}
"""Limits in seconds, which say more about a machine that runs other tests too; `scripts/prove ci` checks them."""


def prove(*arguments: str, within: float) -> subprocess.CompletedProcess[str]:
    command = [str(ROOT / "scripts" / "prove"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=within, check=False)


@pytest.mark.timeout(400)
def test_a_short_run_of_the_laboratory_finds_nothing_and_reports(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    done = prove("ci", "--minutes", "0.5", "--seed", "9", "--no-simulation", "--dir", str(folder), within=380)
    assert (folder / "report.json").exists(), done.stdout[-3000:] + done.stderr[-3000:]
    report = json.loads((folder / "report.json").read_text())
    found = {each["name"] for each in report["invariants"] if each["verdict"] == "invalid"}
    assert found <= TIMED, done.stdout[-3000:]
    assert report["figures"]["messages acknowledged"] > 0
    assert "<svg" in (folder / "report.html").read_text()


@pytest.mark.timeout(200)
def test_simulated_seeds_find_nothing() -> None:
    done = prove("simulate", "--seeds", "100", within=190)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
