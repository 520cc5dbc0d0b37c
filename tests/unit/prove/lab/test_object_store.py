"""Files that are corrupted when stored: always changed, and only during the fault."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from prove.lab.store_link import Corruption, StoreProxy, corrupted
from tests.kit.s3_faults import S3Faults


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoreProxy]:
    s3: Any = SimpleNamespace(port=1, folder=tmp_path)
    (tmp_path / "data" / "lake").mkdir(parents=True)
    with StoreProxy(s3) as proxy:
        yield proxy


def put(proxy: StoreProxy, folder: Path, name: str, content: bytes) -> bytes:
    """Return the content of the store when the writer has its response."""
    file = folder / "data" / "lake" / name
    file.write_bytes(content)
    proxy.draw(("lost", "stalled"), "PUT", f"/lake/{name}")
    return file.read_bytes()


@pytest.mark.parametrize("how", Corruption)
@pytest.mark.parametrize("seed", range(20))
def test_spoilt_bytes_are_always_other_ones(how: Corruption, seed: int) -> None:
    chance = random.Random(seed)
    for other in (b"", b"content", b"others"):
        assert corrupted(how, b"content", other, chance) != b"content"


def test_files_are_spoilt_until_the_fault_ends(store: StoreProxy, tmp_path: Path) -> None:
    assert put(store, tmp_path, "a", b"before") == b"before"
    store.corrupt(Corruption.OTHER, 1.0, seed=1)
    assert put(store, tmp_path, "b", b"meanwhile") == b"before"
    store.pass_through()
    assert put(store, tmp_path, "c", b"after") == b"after"
    assert store.happened == {"corrupted": 1}


def test_a_share_of_them_is_spoilt(store: StoreProxy, tmp_path: Path) -> None:
    store.corrupt(Corruption.FLIPPED, 0.5, seed=1)
    kept = sum(put(store, tmp_path, str(number), b"content") == b"content" for number in range(100))
    assert 30 < kept < 70


def test_who_waits_for_an_answer_is_let_go_when_the_fault_ends(store: StoreProxy) -> None:
    store.faults = S3Faults(stalled=1.0)
    store.pass_through()
    store.stall()
