"""Objects as files of a folder. What differs from other stores: a file is on the disk only once it was flushed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from lakelog.errors import ObjectStoreUnavailable
from lakelog.objectstore.store import ObjectStore

if TYPE_CHECKING:
    from obstore.store import LocalStore


class LocalObjectStore(ObjectStore):
    """A folder."""

    def __init__(self, url: str, backend: LocalStore, folder: Path) -> None:
        super().__init__(url, backend)
        self._folder = folder

    def put(self, path: str, data: bytes | Path) -> None:
        super().put(path, data)
        # The log drops its own copy relying on this one, so it has to outlive a power cut: the file, and the name
        # of it and of every folder that may be new.
        place = self._folder / path
        try:
            for step in (place, *place.parents):
                _flush(step)
                if step == self._folder:
                    break
        except OSError as exc:
            detail = f"{self._where(path)} cannot be flushed to the disk: {exc.strerror}."
            raise ObjectStoreUnavailable(detail, path=path) from exc


def _flush(place: Path) -> None:
    descriptor = os.open(place, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
