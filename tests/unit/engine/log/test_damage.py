"""The test for damage: found on any server, without reading hot batches, within a limit of time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from lakelog.engine.log import damage as module
from lakelog.engine.log.damage import Damage, DamageTest, damage_of
from lakelog.engine.log.extents import Extents
from lakelog.errors import ObjectStoreUnavailable, SegmentDamaged
from tests.unit.engine.log.test_extents import TOPIC, Cold


async def test_damage_is_found_where_it_lies_and_nowhere_else(tmp_path: Path) -> None:
    cold = Cold(tmp_path)
    await cold.fill(3, 4, 5)
    cold.objects.delete(cold.segments[1].path)
    test = DamageTest(cold.extents)
    assert await test.find(TOPIC, {0: {0}}) == {}
    assert await test.find(TOPIC, {0: {0, 4}}) == {0: Damage(3, 7)}
    assert await test.find(TOPIC, {0: {7, 11}}) == {}
    assert await test.find(TOPIC, {0: {12}}) == {}, "nothing is there yet"
    await cold.extents.close()


async def test_known_damage_is_not_read_again_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cold = Cold(tmp_path)
    await cold.fill(3)
    data = cold.objects.get(cold.segments[0].path)
    cold.objects.delete(cold.segments[0].path)
    test = DamageTest(cold.extents)
    assert await test.find(TOPIC, {0: {1}}) == {0: Damage(0, 3)}
    cold.objects.put(cold.segments[0].path, data)
    assert await test.find(TOPIC, {0: {1}}) == {0: Damage(0, 3)}
    monkeypatch.setattr(module, "_KEEP_SECONDS", 0.0)
    assert await test.find(TOPIC, {0: {1}}) == {}
    await cold.extents.close()


@pytest.mark.parametrize("error", [ObjectStoreUnavailable("away"), None])
async def test_a_store_that_does_not_respond_is_no_damage_and_holds_up_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    cold = Cold(tmp_path)
    await cold.fill(3)
    monkeypatch.setattr(module, "TEST_SECONDS", 0.05)

    async def hang(*_: Any) -> Any:
        if error is not None:
            raise error
        await asyncio.sleep(60)

    monkeypatch.setattr(cold.extents, "_run", hang)
    assert await DamageTest(cold.extents).find(TOPIC, {0: {1}}) == {}


async def test_without_an_object_store_nothing_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cold = Cold(tmp_path)
    await cold.fill(3)
    monkeypatch.setattr(cold.store, "read_many", None)
    assert await DamageTest(Extents({0: cold.store})).find(TOPIC, {0: {1}}) == {}


def test_other_errors_are_no_damage() -> None:
    assert damage_of(SegmentDamaged("of a file that Spark reads", path="x")) is None
    assert damage_of(None) is None
