"""Timelines of a cell: what is known where no standby was promoted."""

from __future__ import annotations

from tests.contract.stores import Backing
from tests.contract.values import new_pids


async def test_no_end_is_known_without_a_promotion(backing: Backing) -> None:
    async with backing.store() as store:
        (pid,) = new_pids(1)
        await store.heads_create([pid], 1)
        assert store.timeline == 1
        assert await store.timelines.ends_after([(pid, 1), (pid, 2)]) == [None, None]
        assert await store.timelines.ends_after([]) == []
        await store.timelines.await_standby()
