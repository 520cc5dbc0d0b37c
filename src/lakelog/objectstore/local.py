"""An object store in a folder. Unlike other stores, it must flush each file to the disk."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from lakelog.errors import ObjectStoreUnavailable
from lakelog.objectstore.store import ObjectStore

if TYPE_CHECKING:
    from obstore.store import LocalStore


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
