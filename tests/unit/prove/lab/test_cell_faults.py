"""A cell that is missing when a server starts: what is done to the link, and what L9 learns from the start."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from prove.history.lines import Line
from prove.lab.claims import Claims
from prove.lab.faults import cells
from prove.lab.faults.cells import CellMissing


class Told:
    """Records the calls of its methods."""

    running = True

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return lambda: self.calls.append(name)


def make_topology(folder: Path, *, is_ready: bool = True) -> Any:
    def await_ready(server: Any, *, within: float = 60.0) -> None:
        if within < 60.0 and not is_ready:
            server.process.running = False
            raise AssertionError("not ready")

    (folder / "history").mkdir()
    server = SimpleNamespace(name="server0", process=Told(), database_links=[Told(), Told()])
    return SimpleNamespace(
        claims=Claims(),
        cells=["cell0", "cell1"],
        server_names=["server0"],
        server=lambda name: server,
        await_ready=await_ready,
        folder=folder,
        recorded=[],
    )


def samples(topology: Any) -> list[Line]:
    texts = [path.read_bytes() for path in (topology.folder / "history").glob("*.jsonl")]
    lines = [msgspec.json.decode(line, type=Line) for text in texts for line in text.splitlines()]
    return [line for line in lines if line.op == "sample"]


@pytest.mark.parametrize(("seed", "fault"), [(4, "half_open"), (2, "cut_off")])
def test_the_server_starts_without_the_second_cell(tmp_path: Path, seed: int, fault: str) -> None:
    topology = make_topology(tmp_path)
    missing = CellMissing()
    missing.begin(topology, random.Random(seed))
    server = topology.server("server0")
    assert server.process.calls == ["kill9", "start"]
    assert server.database_links[0].calls == [] and server.database_links[1].calls == [fault]
    missing.end(topology)
    assert server.database_links[1].calls == [fault, "pass_through"]
    topology.claims.take({"server0", "cell0", "cell1"}, within=0)
    (sample,) = samples(topology)
    assert sample.sample == "beside" and not sample.stale and sample.told <= sample.truth


def test_a_server_that_does_not_become_ready_violates_l9(tmp_path: Path) -> None:
    topology = make_topology(tmp_path, is_ready=False)
    missing = CellMissing()
    missing.begin(topology, random.Random(1))
    missing.end(topology)
    # It starts again when the cell is back.
    assert topology.server("server0").process.calls == ["kill9", "start", "start"]
    (sample,) = samples(topology)
    assert sample.stale
    assert sample.truth == 1000 * cells.READY_SECONDS
