"""A real S3 server behind a faulty proxy: faults are repaired or refused, and no wrong bytes are returned."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from lakelog.errors import Conflict, ObjectStoreUnavailable, SegmentDamaged, UnsupportedFormat
from lakelog.model.segment import Segment
from lakelog.objectstore import ObjectStore, open_store
from lakelog.segments.layout import segment_path
from lakelog.segments.reader import SegmentFile, verify
from lakelog.segments.writer import SegmentWriter
from tests.kit.s3 import S3Server
from tests.kit.s3_faults import S3FaultProxy, S3Faults
from tests.unit.segments.samples import PARTITION, positioned

ROWS = 3000


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[S3FaultProxy]:
    with S3FaultProxy(s3.port, seed=5) as proxy:
        yield proxy


@pytest.fixture
def store(s3: S3Server, proxy: S3FaultProxy, request: pytest.FixtureRequest) -> ObjectStore:
    options = {**s3.options, "endpoint": proxy.endpoint, "timeout": "5", "max_retries": "6"}
    return open_store(f"{s3.url}/{request.node.name}", options)


@pytest.fixture
def direct(s3: S3Server, request: pytest.FixtureRequest) -> ObjectStore:
    """Return the same store without the proxy, to see what is really stored."""
    return open_store(f"{s3.url}/{request.node.name}", s3.options)


def _faults(kind: str, share: float, **rest: Any) -> S3Faults:
    shares: dict[str, Any] = {kind: share}
    return S3Faults(**shares, **rest)


def _sealed(store: ObjectStore, batch: pa.RecordBatch) -> Segment:
    file = io.BytesIO()
    writer = SegmentWriter(file, PARTITION)
    writer.write(batch)
    sealed = writer.close()
    segment = sealed.segment(segment_path(1, 1, PARTITION, sealed.first, sealed.end))
    store.put(segment.path, file.getvalue())
    return segment


def test_errors_of_the_server_are_retried(store: ObjectStore, proxy: S3FaultProxy) -> None:
    proxy.faults = S3Faults(refused=0.3)
    for number in range(20):
        store.put(f"a/{number}", b"%d" % number)
    assert [store.get(f"a/{number}") for number in range(20)] == [b"%d" % number for number in range(20)]
    assert len(list(store.list("a"))) == 20
    assert proxy.happened["refused"] > 5


def test_a_server_that_only_fails_is_an_outage(s3: S3Server, proxy: S3FaultProxy) -> None:
    store = open_store(s3.url, {**s3.options, "endpoint": proxy.endpoint, "max_retries": "2"})
    proxy.faults = S3Faults(refused=1)
    for call in (store.get, store.size, store.delete, lambda path: store.put(path, b"x")):
        with pytest.raises(ObjectStoreUnavailable):
            call("a/one")


@pytest.mark.parametrize("kind", ["lost", "stalled"])
def test_a_put_that_was_stored_and_not_answered_is_a_success_s21(
    store: ObjectStore, direct: ObjectStore, proxy: S3FaultProxy, kind: str
) -> None:
    """The second attempt finds the object: it is its own, not a conflict."""
    proxy.faults = _faults(kind, 1, methods=("PUT",), times=1)
    store.put("a/one", b"mine" * 1000)
    assert proxy.happened == {kind: 1} and proxy.requests["PUT"] == 2
    assert direct.get("a/one") == b"mine" * 1000


def test_an_object_of_another_writer_stays_a_conflict(
    store: ObjectStore, direct: ObjectStore, proxy: S3FaultProxy
) -> None:
    direct.put("a/one", b"them" * 1000)
    proxy.faults = S3Faults(lost=1, methods=("PUT",), times=1)
    with pytest.raises(Conflict):
        store.put("a/one", b"mine" * 1000)
    assert direct.get("a/one") == b"them" * 1000


@pytest.mark.parametrize("kind", ["truncated", "shortened", "flipped"])
def test_an_own_object_that_reads_back_damaged_is_not_a_conflict(
    store: ObjectStore, proxy: S3FaultProxy, kind: str
) -> None:
    store.put("a/one", b"mine" * 1000)
    proxy.faults = _faults(kind, 1, times=1)
    store.put("a/one", b"mine" * 1000)
    assert proxy.happened[kind] == 1


def test_a_put_that_is_never_answered_says_that_it_may_be_there(
    s3: S3Server, proxy: S3FaultProxy, direct: ObjectStore, request: pytest.FixtureRequest
) -> None:
    options = {**s3.options, "endpoint": proxy.endpoint, "max_retries": "1"}
    store = open_store(f"{s3.url}/{request.node.name}", options)
    proxy.faults = S3Faults(lost=1)
    with pytest.raises(ObjectStoreUnavailable):
        store.put("a/one", b"mine")
    assert direct.get("a/one") == b"mine"


@pytest.mark.parametrize("times", [1, None])
@pytest.mark.parametrize("kind", ["truncated", "shortened"])
def test_a_short_range_is_never_returned(store: ObjectStore, proxy: S3FaultProxy, kind: str, times: int | None) -> None:
    data = bytes(range(250)) * 400
    store.put("a/one", data)
    proxy.faults = _faults(kind, 1, times=times)
    if times is None:
        with pytest.raises(ObjectStoreUnavailable):
            store.get_range("a/one", 100, 50_000)
    else:
        assert store.get_range("a/one", 100, 50_000) == data[100:50_100]
    assert proxy.happened[kind]


def test_a_truncated_body_is_never_returned(store: ObjectStore, proxy: S3FaultProxy) -> None:
    data = bytes(range(250)) * 4000
    store.put("a/one", data)
    proxy.faults = S3Faults(truncated=1, times=2)
    assert store.get("a/one") == data
    proxy.faults = S3Faults(truncated=1)
    with pytest.raises(ObjectStoreUnavailable):
        store.get("a/one")


@pytest.mark.parametrize("kind", ["shortened", "flipped", "swapped"])
def test_verification_finds_damage_on_the_way_s20(store: ObjectStore, proxy: S3FaultProxy, kind: str) -> None:
    segment = _sealed(store, positioned(ROWS))
    _sealed(store, positioned(ROWS).slice(0, ROWS - 1))
    verify(store, segment)
    proxy.faults = _faults(kind, 1)
    with pytest.raises(SegmentDamaged):
        verify(store, segment)
    assert proxy.happened[kind]


@pytest.mark.parametrize("kind", ["truncated", "shortened", "flipped", "swapped", "refused", "lost"])
def test_readers_get_right_messages_or_none_s22(store: ObjectStore, proxy: S3FaultProxy, kind: str) -> None:
    batch = positioned(ROWS)
    segment = _sealed(store, batch)
    _sealed(store, positioned(ROWS, run=11))
    proxy.faults = _faults(kind, 0.3, methods=("GET", "HEAD"))
    right = 0
    for _ in range(25):
        try:
            with SegmentFile(store.open_file(segment.path, segment.bytes), segment) as file:
                got = pa.Table.from_batches(file.read(1200, 1400)).to_pylist()
        except (SegmentDamaged, ObjectStoreUnavailable, UnsupportedFormat):
            continue
        assert got == batch.slice(1200, 200).to_pylist()
        right += 1
    assert right and proxy.happened[kind]
