"""Failovers in the simulation: a cell goes back to an earlier state, and the engine must not use what it knew."""

from __future__ import annotations

import pytest

from lakelog.engine.cell_caches import CellCaches
from lakelog.engine.leasing.batch_cache import BatchCache
from lakelog.storage.memory import MemoryStore
from prove.simulation.plan import PROMOTED, SimulationPlan, drawn
from prove.simulation.run import simulate
from prove.simulation.standby import StandbyCopy
from tests.unit.prove.simulation.test_bugs import found

PID = 1 << 16


def is_promoted(plan: SimulationPlan) -> bool:
    return any(fault.kind == PROMOTED for fault in plan.faults)


async def test_a_promoted_standby_has_what_it_received() -> None:
    store = MemoryStore()
    await store.heads_create([PID], 1)
    standby = StandbyCopy(store)
    await store.heads_create([PID + 1], 1)
    assert standby.promote() == {}
    assert [head.pid for head in await store.heads_read([PID, PID + 1])] == [PID]
    assert store.timeline == 2
    assert await store.timelines.ends_after([(PID, 1), (PID, 2)]) == [0, None]


def test_a_seed_with_a_promotion_runs_the_same_way_again() -> None:
    seed = next(seed for seed in range(100, 200) if is_promoted(drawn(seed)))
    once, again = (simulate(seed, digested=True) for _ in range(2))
    assert once.digest == again.digest
    assert once.faults[PROMOTED] == 1


def test_S3_caches_that_survive_a_failover_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CellCaches, "drop", lambda self, cell: None)

    assert found("S3", first=100, among=is_promoted)


def test_S3_batches_that_survive_a_failover_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BatchCache, "drop", lambda self, cell: None)

    assert found("S3", first=100, among=is_promoted)
