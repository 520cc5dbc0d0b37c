"""Reads segments from the object store, for readers of columns that reach it themselves.

A file that is missing or cannot be read ends a read early. The caller reads the rest through the server, which knows
where the messages are now.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from lakelog.client.processes import log
from lakelog.client.reading.columns import Columns
from lakelog.client.reading.read_ranges import ReadRange
from lakelog.errors import ConfigurationError, LakelogError, ObjectNotFound, ObjectStoreUnavailable
from lakelog.objectstore import ObjectStore, open_store
from lakelog.segments.reader import opened

_PROBE = {"timeout": "5", "max_retries": "1"}
"""Settings of the first request, so that a store in another network is noticed quickly."""
_UNREADABLE = (ObjectNotFound, ObjectStoreUnavailable, ConfigurationError)
_THREADS = min(4, os.cpu_count() or 1)


class ColdFiles:
    """The segments of one plan. Its methods block; async code calls them in threads."""

    def __init__(self, store: ObjectStore, columns: Columns) -> None:
        self._store = store
        # The reader checks the offsets.
        self._columns = (*columns, "offset")

    def read(self, wanted: ReadRange) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a range in order. Stop early if the file cannot be read."""
        if wanted.segment is None:
            return
        try:
            with opened(self._store, wanted.segment) as file:
                yield from file.read(wanted.first, wanted.end, self._columns)
        except _UNREADABLE as error:
            log.info("%s is read through the server: %s", wanted.segment.path, error)

    def read_all(self, ranges: Sequence[ReadRange]) -> list[list[pa.RecordBatch]]:
        """Return the messages of each range, read by several threads."""
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="segments") as threads:
            return list(threads.map(lambda wanted: list(self.read(wanted)), ranges))


def open_cold_files(url: str | None, path: str, columns: Columns, direct: bool | None) -> ColdFiles | None:
    """Return the files of the store that holds the object `path`; None if this process cannot read it.

    With `direct`, raise the reason instead of returning None.
    """
    try:
        _check_here(url)
        open_store(str(url), _PROBE).size(path)
        return ColdFiles(open_store(str(url)), columns)
    except LakelogError as error:
        if direct:
            raise
        log.info("History is read through the server: %s", error)
        return None


def _check_here(url: str | None) -> None:
    """Raise an error for a store that only another process has. Opening a folder would create it."""
    if url is None or url.startswith("memory:"):
        raise ConfigurationError("The object store is in the memory of the server, so it cannot be read directly.")
    if url.startswith("file:") and not (folder := Path(unquote(urlsplit(url).path))).is_dir():
        raise ConfigurationError(f"The folder {folder} of the object store does not exist on this machine.", url=url)
