"""An object as a readable, seekable file. Each read is one ranged request; nothing is cached."""

from __future__ import annotations

import io
from collections.abc import Callable

GetRange = Callable[[str, int, int], bytes]


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
