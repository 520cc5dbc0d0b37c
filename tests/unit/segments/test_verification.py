"""Damage of every kind is found: by `verify` always, by a reader before it hands out a wrong message."""

from __future__ import annotations

import hashlib
import io
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from lakelog.errors import LakelogError, ObjectNotFound, ObjectStoreUnavailable, SegmentDamaged, UnsupportedFormat
from lakelog.model.segment import Segment
from lakelog.objectstore import ObjectStore, open_store
from lakelog.segments.reader import SegmentFile, verify
from tests.unit.segments.samples import cut, positioned, sealed

BATCH = positioned(60, base=100)
DATA, SEALED = sealed(cut(BATCH, [11]))
SEGMENT = SEALED.segment("one.parquet")


def _store(**objects: bytes) -> ObjectStore:
    store = open_store("memory://")
    for name, data in objects.items():
        store.put(f"{name}.parquet", data)
    return store


def test_a_whole_segment_is_verified_s20() -> None:
    verify(_store(one=DATA), SEGMENT)


@given(st.integers(0, len(DATA) - 1), st.integers(1, 255))
def test_any_changed_byte_s20(place: int, change: int) -> None:
    damaged = bytearray(DATA)
    damaged[place] ^= change
    with pytest.raises(SegmentDamaged):
        verify(_store(one=bytes(damaged)), SEGMENT)


@given(st.integers(0, len(DATA) - 1))
def test_any_truncation_s20(length: int) -> None:
    with pytest.raises(SegmentDamaged):
        verify(_store(one=DATA[:length]), SEGMENT)


def test_a_file_that_took_anothers_place_s20() -> None:
    """The other file has the same range and partition, and its own correct hashes."""
    other, about = sealed([BATCH.set_column(5, BATCH.schema.field(5), BATCH.column(5).take(list(range(59, -1, -1))))])
    verify(_store(one=other), about.segment("one.parquet"))
    with pytest.raises(SegmentDamaged):
        verify(_store(one=other), SEGMENT)
    with pytest.raises(SegmentDamaged):
        SegmentFile(io.BytesIO(other), SEGMENT)


@pytest.mark.parametrize(
    "claim",
    [
        {"partition": 4},
        {"first": 99},
        {"end": 161},
        {"content_hash": "0" * 64},
        {"epoch": 9},
        {"bytes": len(DATA) + 1},
        {"file_hash": "0" * 64},
        {"first_at": datetime.fromisoformat("2020-01-01T00:00:00Z")},
        {"last_at": datetime.fromisoformat("2020-01-01T00:00:00Z")},
    ],
)
def test_every_claim_of_the_segment_is_checked_s20(claim: dict[str, object]) -> None:
    wrong: Segment = replace(SEGMENT, **claim)  # type: ignore[arg-type]
    with pytest.raises(SegmentDamaged):
        verify(_store(one=DATA), wrong)


def test_the_messages_are_hashed_again_not_only_the_footer() -> None:
    """A file whose bytes are as stored, but that was written wrongly: its footer repeats the wrong claim."""
    other = sealed([BATCH.slice(0, 60)])[0]
    lying = other.replace(SEALED.content_hash.encode(), b"f" * 64)
    assert lying != other
    segment = replace(SEGMENT, content_hash="f" * 64, file_hash=hashlib.sha256(lying).hexdigest(), bytes=len(lying))
    with pytest.raises(SegmentDamaged, match="messages"):
        verify(_store(one=lying), segment)


def test_a_missing_file_says_nothing_about_its_messages() -> None:
    with pytest.raises(ObjectNotFound):
        verify(_store(), SEGMENT)


@given(st.integers(0, len(DATA) - 1), st.integers(1, 255))
def test_readers_never_hand_out_wrong_messages(place: int, change: int) -> None:
    """Readers do not hash the whole file; page checksums and the footer's claims do for them."""
    damaged = bytearray(DATA)
    damaged[place] ^= change
    try:
        got = [row for part in SegmentFile(io.BytesIO(damaged), SEGMENT).read() for row in part.to_pylist()]
    except (SegmentDamaged, UnsupportedFormat):
        return
    assert got == BATCH.to_pylist()


def test_what_the_store_raises_passes_through_arrow() -> None:
    with pytest.raises(ObjectStoreUnavailable):
        list(SegmentFile(_Failing(DATA, after=1), SEGMENT).read())
    with pytest.raises(LakelogError):
        SegmentFile(_Failing(DATA, after=0), SEGMENT)


class _Failing(io.BytesIO):
    def __init__(self, data: bytes, *, after: int) -> None:
        super().__init__(data)
        self._left = after

    def read(self, count: int | None = -1, /) -> bytes:
        self._left -= 1
        if self._left < 0:
            raise ObjectStoreUnavailable("The store is away.")
        return super().read(count)
