"""Common behaviour of every object store: a folder, memory, and a real S3 server."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lakelog.errors import ConfigurationError, Conflict, LakelogError, ObjectNotFound, ObjectStoreUnavailable
from lakelog.objectstore import ObjectStore, check_shared, open_store
from lakelog.objectstore import store as module
from tests.kit.s3 import S3Server


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


@pytest.fixture(params=["file", "memory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "file":
        return open_store(f"file://{tmp_path}/store with space")
    if request.param == "memory":
        return open_store("memory://")
    server: S3Server = request.getfixturevalue("s3")
    # Each test has its own folder, as environments share a bucket.
    return open_store(f"{server.url}/{tmp_path.name}", server.options)


def test_an_object_is_read_back(store: ObjectStore, tmp_path: Path) -> None:
    data = bytes(range(256)) * 5000
    store.put("a/b/one.bin", data)
    (tmp_path / "two").write_bytes(data[:-1])
    store.put("a/two.bin", tmp_path / "two")
    assert store.get("a/b/one.bin") == data
    assert store.size("a/b/one.bin") == len(data)
    assert store.get("a/two.bin") == data[:-1]


def test_an_empty_object(store: ObjectStore) -> None:
    store.put("empty", b"")
    assert store.get("empty") == b"" and store.size("empty") == 0
    with store.open_file("empty") as file:
        assert file.read() == b""


def test_an_object_is_written_once(store: ObjectStore) -> None:
    store.put("a/one", b"first")
    for other in (b"other", b"first and more", b""):
        with pytest.raises(Conflict):
            store.put("a/one", other)
    assert store.get("a/one") == b"first"


def test_the_same_bytes_again_are_a_success(store: ObjectStore) -> None:
    """A repeat whose first response was lost."""
    store.put("a/one", b"first")
    store.put("a/one", b"first")


def test_of_many_writers_one_wins(store: ObjectStore) -> None:
    together = threading.Barrier(8)

    def write(number: int) -> int | None:
        together.wait()
        try:
            store.put("a/contested", b"from %d" % number)
        except Conflict:
            return None
        return number

    with ThreadPoolExecutor(8) as pool:
        winners = [number for number in pool.map(write, range(8)) if number is not None]
    assert len(winners) == 1
    assert store.get("a/contested") == b"from %d" % winners[0]


def test_ranges(store: ObjectStore) -> None:
    data = bytes(range(200))
    store.put("a/one", data)
    for start, length in ((0, 1), (0, 200), (13, 50), (199, 1), (200, 0)):
        assert store.get_range("a/one", start, length) == data[start : start + length]


@pytest.mark.parametrize(("start", "length"), [(150, 51), (200, 1), (300, 5)])
def test_a_range_beyond_the_end_is_never_short(store: ObjectStore, start: int, length: int) -> None:
    store.put("a/one", bytes(200))
    with pytest.raises(ObjectStoreUnavailable):
        store.get_range("a/one", start, length)


def test_a_file_to_seek_in(store: ObjectStore) -> None:
    data = bytes(range(200))
    store.put("a/one", data)
    for size in (None, 200):
        with store.open_file("a/one", size) as file:
            assert file.seekable() and file.read(5) == data[:5] and file.tell() == 5
            assert file.seek(-10, 2) == 190 and file.read(50) == data[190:] and file.read(3) == b""
            assert file.seek(100) == 100 and file.seek(5, 1) == 105 and file.read() == data[105:]


def test_missing_objects(store: ObjectStore) -> None:
    calls = (store.get, store.size, store.open_file, lambda path: store.get_range(path, 0, 5))
    for call in calls:
        with pytest.raises(ObjectNotFound):
            call("a/nothing")


def test_listing(store: ObjectStore) -> None:
    before = datetime.now(UTC) - timedelta(seconds=5)
    paths = [f"e1/t{n}/{m:03d}.parquet" for n in (1, 2, 12) for m in range(5)]
    for number, path in enumerate(paths):
        store.put(path, bytes(number))
    assert sorted(found.path for found in store.list()) == sorted(paths)
    found = sorted(store.list("e1/t1"), key=lambda stored: stored.path)
    assert [(stored.path, stored.bytes) for stored in found] == [(path, n) for n, path in enumerate(paths[:5])]
    assert all(before < stored.modified_at < datetime.now(UTC) + timedelta(seconds=5) for stored in found)
    assert list(store.list("e2")) == []


def test_many_objects_are_listed_whole(store: ObjectStore) -> None:
    """S3 returns a listing in pages of a thousand."""
    if store.url.startswith("s3"):
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda n: store.put(f"many/{n:05d}", b"x"), range(1100)))
        assert len({found.path for found in store.list("many")}) == 1100


def test_many_objects_are_deleted_at_once_and_missing_ones_are_no_error(store: ObjectStore) -> None:
    for name in "abcd":
        store.put(f"x/{name}", name.encode())
    store.delete_many(["x/a", "x/missing", "x/b", "x/d"])
    assert [each.path for each in store.list("x")] == ["x/c"]
    store.delete_many([])


def test_a_large_file_is_put_and_read_in_parts(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK_BYTES", 1 << 20)
    data = os.urandom((3 << 20) + 5)
    (tmp_path / "large").write_bytes(data)
    store.put("large", tmp_path / "large")
    assert [len(chunk) for chunk in store.chunks("large", len(data))] == [1 << 20] * 3 + [5]
    assert b"".join(store.chunks("large", len(data))) == data
    store.put("large", tmp_path / "large")
    (tmp_path / "large").write_bytes(data[:-1] + b"x" if data[-1:] != b"x" else data[:-1] + b"y")
    with pytest.raises(Conflict):
        store.put("large", tmp_path / "large")
    (tmp_path / "empty").write_bytes(b"")
    store.put("empty", tmp_path / "empty")
    assert store.get("empty") == b""


def test_deleting_twice_is_no_error(store: ObjectStore) -> None:
    store.put("a/one", b"first")
    store.put("a/two", b"second")
    store.delete("a/one")
    store.delete("a/one")
    assert [found.path for found in store.list()] == ["a/two"]
    store.put("a/one", b"again")
    assert store.get("a/one") == b"again"


def test_wrong_credentials_are_no_outage(s3: S3Server) -> None:
    store = open_store(s3.url, {**s3.options, "secret_access_key": "wrong"})
    with pytest.raises(ConfigurationError):
        store.get("a/one")


def test_a_server_that_is_away_is_an_outage() -> None:
    options = {"endpoint": "http://127.0.0.1:9", "region": "x", "access_key_id": "x", "secret_access_key": "x"}
    store = open_store("s3://lake/log", {**options, "max_retries": "1"})
    with pytest.raises(ObjectStoreUnavailable) as caught:
        store.get("a/one")
    assert caught.value.retryable


def test_the_environment_will_do(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in s3.env.items():
        monkeypatch.setenv(name, text)
    monkeypatch.delenv("AWS_ALLOW_HTTP")
    store = open_store(f"{s3.url}/environment")
    store.put("one", b"first")
    assert store.get("one") == b"first"


@pytest.mark.parametrize("url", ["", "lake", "file://host/a", "s3://", "http://lake/log", "gs://lake"])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(LakelogError, match="object store"):
        open_store(url)


def test_a_wrong_option_is_named() -> None:
    with pytest.raises(ConfigurationError, match="colour"):
        open_store("s3://lake/log", {"colour": "blue"})


@pytest.mark.parametrize(
    "url",
    ["ftp://x", "/var/objects", "file://folder", "s3://", "s3:///prefix", "s3://a b/c", "s3://h:9/b", "memory://"],
)
def test_a_server_names_the_forms_that_it_supports(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_shared(url)
    assert url in caught.value.detail and "file:///folder or s3://bucket/prefix" in caught.value.detail
    assert "\n" not in caught.value.detail


def test_a_server_creates_no_folder_when_it_checks_its_store(tmp_path: Path) -> None:
    check_shared(f"file://{tmp_path}/a/b")
    check_shared("s3://lake/log")
    assert not (tmp_path / "a").exists()


def test_a_folder_that_cannot_be_used_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match=rf"{tmp_path}/file is a file"):
        check_shared(f"file://{tmp_path}/file/objects")
    # Permissions do not restrict root, which may run the tests.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(ConfigurationError, match=f"may not read and write {tmp_path}"):
        check_shared(f"file://{tmp_path}/objects")


@pytest.mark.parametrize("url", ["s3://lake/log", "file:///tmp"])
def test_a_missing_package_is_named(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(ConfigurationError, match=r"obstore.*pip install 'lakelog\[s3\]'"):
        check_shared(url)
    with pytest.raises(ConfigurationError, match="not supported"):
        check_shared("ftp://x")
