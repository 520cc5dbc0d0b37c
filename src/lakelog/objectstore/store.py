"""An object store: whole objects by path, written once, never changed. One in a folder also flushes to the disk.

All calls block, so async code calls them in threads. Transient failures are retried with backoff and a limit.
Exceptions of the SDK are translated here. There is no cache.
"""

from __future__ import annotations

import io
import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from lakelog.errors import ConfigurationError, Conflict, ObjectNotFound, ObjectStoreUnavailable, first_line

if TYPE_CHECKING:
    from obstore.store import LocalStore
    from obstore.store import ObjectStore as Backend

GetRange = Callable[[str, int, int], bytes]
Content = bytes | mmap.mmap
CHUNK_BYTES = 8 << 20
"""Bytes of one request where an object is read in parts."""
# A response that is shorter than requested is requested again; the SDK only detects one that is interrupted.
_TRIES = 3
# Maximum length of an SDK message in an error.
_TOLD = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """An object in a listing."""

    path: str
    bytes: int
    modified_at: datetime


class ObjectStore:
    """A store of objects. Paths are relative to its URL."""

    def __init__(self, url: str, backend: Backend) -> None:
        self.url = url
        self._backend = backend

    def put(self, path: str, data: bytes | Path) -> None:
        """Store a new object, whole or not at all. Raise `Conflict` if the path exists with other bytes.

        Storing the same bytes again succeeds: the response to the first attempt may have been lost. After
        `ObjectStoreUnavailable` the object may or may not exist.
        """
        content = self._content(data) if isinstance(data, Path) else data
        # The SDK does not retry a write whose response was lost. This write is safe to retry.
        for _ in range(_TRIES - 1):
            try:
                return self._create(path, content)
            except ObjectStoreUnavailable:
                continue
        return self._create(path, content)

    def get(self, path: str) -> bytes:
        """Return the whole object."""
        import obstore

        for _ in range(_TRIES):
            with self._translated(path):
                answer = obstore.get(self._backend, path)
                data = bytes(answer.bytes())
            if len(data) == answer.meta["size"]:
                return data
        raise self._short(path)

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """Return exactly these bytes. Raise an error if the range is not within the object."""
        data = self._range(path, start, length)
        if len(data) != length:
            raise self._short(path)
        return data

    def chunks(self, path: str, size: int) -> Iterator[bytes]:
        """Yield the object in parts of up to 8 MiB. `size` is the size of the object.

        The caller compares the bytes: a part that the store keeps cutting short is yielded too, because such an object
        is damaged and not unavailable.
        """
        for start in range(0, size, CHUNK_BYTES):
            yield self._range(path, start, min(CHUNK_BYTES, size - start))

    def _range(self, path: str, start: int, length: int) -> bytes:
        import obstore

        data = b""
        for _ in range(_TRIES if length else 0):
            with self._translated(path):
                data = bytes(obstore.get_range(self._backend, path, start=start, length=length))
            if len(data) == length:
                break
        return data

    def size(self, path: str) -> int:
        import obstore

        with self._translated(path):
            return int(obstore.head(self._backend, path)["size"])

    def list(self, prefix: str = "") -> Iterator[StoredObject]:
        """Yield every object in the folder `prefix` and its subfolders, in no particular order."""
        import obstore

        with self._translated(prefix):
            for chunk in obstore.list(self._backend, prefix or None):
                for item in chunk:
                    yield StoredObject(path=item["path"], bytes=item["size"], modified_at=item["last_modified"])

    def delete(self, path: str) -> None:
        """Delete the object, if it exists."""
        import obstore

        try:
            with self._translated(path):
                obstore.delete(self._backend, path)
        except ObjectNotFound:
            return

    def delete_many(self, paths: Sequence[str]) -> None:
        """Delete the objects that exist; S3 gets one request for up to 1,000 of them."""
        import obstore

        try:
            with self._translated(paths[0] if paths else ""):
                obstore.delete(self._backend, list(paths))
        except ObjectNotFound:
            # A folder stops at an object that does not exist.
            for path in paths:
                self.delete(path)

    def open_file(self, path: str, size: int | None = None) -> BinaryIO:
        """Return the object as a seekable file. Each read is one ranged request. A known `size` saves a request."""
        return cast(BinaryIO, ObjectFile(self.get_range, path, self.size(path) if size is None else size))

    def _content(self, file: Path) -> Content:
        """Return the bytes of a file without reading it into memory.

        A multipart upload would not need the bytes at once either, but cannot refuse to replace an object. A store in
        memory keeps what it is given, which must not change with the file.
        """
        if file.stat().st_size == 0 or self.url.startswith("memory:"):
            return file.read_bytes()
        with file.open("rb") as opened:
            return mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)

    def _create(self, path: str, content: Content) -> None:
        import obstore
        from obstore.exceptions import AlreadyExistsError

        try:
            with self._translated(path):
                obstore.put(self._backend, path, content, mode="create")
        except AlreadyExistsError as exc:
            if not self._holds(path, content):
                raise Conflict(f"{self._where(path)} already exists with other bytes.", path=path) from exc

    def _holds(self, path: str, content: Content) -> bool:
        try:
            if self.size(path) != len(content):
                return False
            # Bytes that were damaged in transit must not look like another object.
            return any(self._is_equal(path, content) for _ in range(_TRIES))
        except ObjectNotFound:
            return False

    def _is_equal(self, path: str, content: Content) -> bool:
        at = 0
        for chunk in self.chunks(path, len(content)):
            if chunk != content[at : at + len(chunk)]:
                return False
            at += len(chunk)
        return at == len(content)

    def _where(self, path: str) -> str:
        return f"{self.url.rstrip('/')}/{path}"

    def _short(self, path: str) -> ObjectStoreUnavailable:
        return ObjectStoreUnavailable(
            f"The object store returned too few bytes of {self._where(path)}, {_TRIES} times.", path=path
        )

    @contextmanager
    def _translated(self, path: str) -> Iterator[None]:
        from obstore import exceptions

        refused = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)
        try:
            yield
        except FileNotFoundError as exc:
            raise ObjectNotFound(f"The object {self._where(path)} does not exist.", path=path) from exc
        except exceptions.AlreadyExistsError:
            raise
        except refused as exc:
            detail = f"The object store denied access to {self._where(path)}: {first_line(exc, _TOLD)}"
            raise ConfigurationError(detail, path=path) from exc
        except (exceptions.InvalidPathError, exceptions.NotSupportedError) as exc:
            raise ConfigurationError(
                f"{self._where(path)} cannot be used: {first_line(exc, _TOLD)}", path=path
            ) from exc
        except (exceptions.BaseError, OSError) as exc:
            raise ObjectStoreUnavailable(f"{self._where(path)}: {first_line(exc, _TOLD)}", path=path) from exc


class LocalObjectStore(ObjectStore):
    """An object store in a folder."""

    def __init__(self, url: str, backend: LocalStore, folder: Path) -> None:
        super().__init__(url, backend)
        self._folder = folder

    def put(self, path: str, data: bytes | Path) -> None:
        super().put(path, data)
        # The log drops its copy once this one exists, so the file, its name and every new folder must survive a power
        # failure.
        place = self._folder / path
        try:
            for step in (place, *place.parents):
                _flush(step)
                if step == self._folder:
                    break
        except OSError as exc:
            detail = f"{self._where(path)} could not be flushed to the disk: {exc.strerror}."
            raise ObjectStoreUnavailable(detail, path=path) from exc


def _flush(place: Path) -> None:
    descriptor = os.open(place, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class ObjectFile(io.RawIOBase):
    """A read-only file over ranged reads."""

    def __init__(self, get_range: GetRange, path: str, size: int) -> None:
        self._get_range = get_range
        self._path = path
        self._size = size
        self._at = 0

    @property
    def name(self) -> str:
        return self._path

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, start + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, count: int = -1) -> bytes:
        left = max(0, self._size - self._at)
        data = self._get_range(self._path, self._at, left if count < 0 else min(count, left))
        self._at += len(data)
        return data
