"""An object store: whole objects by path, written once, never changed.

Everything blocks: an event loop calls it in threads. Transient failures are tried again inside, with back-off and a
limit; foreign exceptions end here. It has no cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from lakelog.errors import ConfigurationError, Conflict, ObjectNotFound, ObjectStoreUnavailable, first_line
from lakelog.objectstore.reading import ObjectFile

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Backend

# An answer that is shorter than asked for is asked for again; the SDK itself only notices one that breaks off.
_TRIES = 3
# So much of what the SDK says goes into an error of ours.
_TOLD = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """What a listing says about an object."""

    path: str
    bytes: int
    modified_at: datetime


class ObjectStore:
    """A store of objects. Paths are relative to its URL."""

    def __init__(self, url: str, backend: Backend) -> None:
        self.url = url
        self._backend = backend

    def put(self, path: str, data: bytes | Path) -> None:
        """Stores a new object, wholly or not at all; one that is there with other bytes is a `Conflict`.

        The same bytes under the same path are a success: the answer to the first try may have been lost. After
        `ObjectStoreUnavailable` the object may be there or not.
        """
        content = data.read_bytes() if isinstance(data, Path) else data
        # The SDK does not repeat a write whose answer was lost, for fear of doing it twice; this one may be repeated.
        for _ in range(_TRIES - 1):
            try:
                return self._create(path, content)
            except ObjectStoreUnavailable:
                continue
        return self._create(path, content)

    def get(self, path: str) -> bytes:
        """The whole object."""
        import obstore

        for _ in range(_TRIES):
            with self._translated(path):
                answer = obstore.get(self._backend, path)
                data = bytes(answer.bytes())
            if len(data) == answer.meta["size"]:
                return data
        raise self._short(path)

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """Exactly these bytes; a range that is not wholly inside the object is refused."""
        import obstore

        if length == 0:
            return b""
        for _ in range(_TRIES):
            with self._translated(path):
                data = bytes(obstore.get_range(self._backend, path, start=start, length=length))
            if len(data) == length:
                return data
        raise self._short(path)

    def size(self, path: str) -> int:
        import obstore

        with self._translated(path):
            return int(obstore.head(self._backend, path)["size"])

    def list(self, prefix: str = "") -> Iterator[StoredObject]:
        """Every object in the folder `prefix` and in those below it, in no order to rely on."""
        import obstore

        with self._translated(prefix):
            for chunk in obstore.list(self._backend, prefix or None):
                for item in chunk:
                    yield StoredObject(path=item["path"], bytes=item["size"], modified_at=item["last_modified"])

    def delete(self, path: str) -> None:
        """Removes the object; one that is not there is as good as removed."""
        import obstore

        try:
            with self._translated(path):
                obstore.delete(self._backend, path)
        except ObjectNotFound:
            return

    def open_file(self, path: str, size: int | None = None) -> BinaryIO:
        """The object as a file to read and seek in; each read is one ranged request. `size`, if known, saves one."""
        return cast(BinaryIO, ObjectFile(self.get_range, path, self.size(path) if size is None else size))

    def _create(self, path: str, content: bytes) -> None:
        import obstore
        from obstore.exceptions import AlreadyExistsError

        try:
            with self._translated(path):
                obstore.put(self._backend, path, content, mode="create")
        except AlreadyExistsError as exc:
            if not self._holds(path, content):
                raise Conflict(f"{self._where(path)} exists already, with other bytes.", path=path) from exc

    def _holds(self, path: str, content: bytes) -> bool:
        try:
            if self.size(path) != len(content):
                return False
            # Bytes that were hurt on their way must not look like somebody else's.
            return any(self.get_range(path, 0, len(content)) == content for _ in range(_TRIES))
        except ObjectNotFound:
            return False

    def _where(self, path: str) -> str:
        return f"{self.url.rstrip('/')}/{path}"

    def _short(self, path: str) -> ObjectStoreUnavailable:
        return ObjectStoreUnavailable(f"{self._where(path)} was answered short, {_TRIES} times.", path=path)

    @contextmanager
    def _translated(self, path: str) -> Iterator[None]:
        from obstore import exceptions

        refused = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)
        try:
            yield
        except FileNotFoundError as exc:
            raise ObjectNotFound(f"There is no object {self._where(path)}.", path=path) from exc
        except exceptions.AlreadyExistsError:
            raise
        except refused as exc:
            detail = f"The object store refuses {self._where(path)} to these credentials: {first_line(exc, _TOLD)}"
            raise ConfigurationError(detail, path=path) from exc
        except (exceptions.InvalidPathError, exceptions.NotSupportedError) as exc:
            raise ConfigurationError(
                f"{self._where(path)} cannot be used: {first_line(exc, _TOLD)}", path=path
            ) from exc
        except (exceptions.BaseError, OSError) as exc:
            raise ObjectStoreUnavailable(f"{self._where(path)}: {first_line(exc, _TOLD)}", path=path) from exc
