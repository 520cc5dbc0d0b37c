"""The link to the object store: the S3 fault proxy, and corruption of files when they are stored.

A file is corrupted before its writer gets a response, so no client can have read the correct bytes.
"""

from __future__ import annotations

import random
from enum import Enum
from pathlib import Path
from urllib.parse import unquote

from tests.kit.s3 import S3Server
from tests.kit.s3_faults import S3FaultProxy, S3Faults


class Corruption(Enum):
    """The kinds of corruption."""

    PART = "truncated"
    FLIPPED = "one bit flipped"
    OTHER = "bytes of another file"


class StoreProxy(S3FaultProxy):
    """A proxy that closes hanging connections when a fault ends. They would otherwise wait for two minutes."""

    def __init__(self, s3: S3Server) -> None:
        super().__init__(s3.port)
        self._data = s3.folder / "data"
        self._chance = random.Random()
        self._spoilt: Corruption | None = None
        self._share = 0.0
        self._last = b""

    def __enter__(self) -> StoreProxy:
        super().__enter__()
        return self

    def corrupt(self, how: Corruption, share: float, seed: int) -> None:
        """Corrupt this share of the files that are stored from now on."""
        self._spoilt, self._share, self._chance = how, share, random.Random(seed)

    def pass_through(self) -> None:
        self._spoilt = None
        self.faults = S3Faults()

    def stall(self) -> None:
        while self.faults.stalled and not self._closing.wait(0.1):
            pass

    def draw(self, kinds: tuple[str, ...], method: str, path: str) -> str | None:
        if method == "PUT" and "lost" in kinds:
            self._stored_now(self._data / unquote(path).lstrip("/"))
        return super().draw(kinds, method, path)

    def _stored_now(self, file: Path) -> None:
        how = self._spoilt
        if not file.exists():
            return
        content = file.read_bytes()
        if how is not None and self._chance.random() < self._share:
            file.write_bytes(corrupted(how, content, self._last, self._chance))
            self.happened["corrupted"] += 1
        self._last = content


def corrupted(how: Corruption, content: bytes, other: bytes, chance: random.Random) -> bytes:
    """Return bytes that always differ from the content."""
    if how is Corruption.OTHER and other and other != content:
        return other
    if how is Corruption.PART:
        return content[: chance.randrange(len(content))]
    changed = bytearray(content)
    changed[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    return bytes(changed)
