"""Draws one small square for each partition, as an image: thousands of elements would make a page slow."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

LEVELS = 9
_COLD, _HOT = (0x9C, 0xB8, 0xC9), (0xB0, 0x2A, 0x1E)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
    """An image for an `img` element.

    Attributes:
        source: The image as a `data:` URL.
        columns: How many squares a row has.
        rows: How many rows there are.
    """

    source: str
    columns: int
    rows: int


def heat_map(values: Sequence[int]) -> HeatMap:
    """Return the map of these values: row by row, from the smallest (grey) to the largest (red)."""
    columns = min(len(values), max(20, math.isqrt(max(0, len(values) - 1)) + 1))
    rows = math.ceil(len(values) / columns)
    top = max(values, default=0)
    levels = bytes(_level(value, top) for value in values) + bytes(columns * rows - len(values))
    lines = b"".join(b"\0" + levels[row * columns : (row + 1) * columns] for row in range(rows))
    header = struct.pack(">IIBBBBB", columns, rows, 8, 3, 0, 0, 0)
    image = b"\x89PNG\r\n\x1a\n" + b"".join(
        [
            _chunk(b"IHDR", header),
            _chunk(b"PLTE", bytes([0, 0, 0]) + b"".join(_colour(level) for level in range(LEVELS))),
            # The first colour is that of the unused squares at the end.
            _chunk(b"tRNS", b"\0"),
            _chunk(b"IDAT", zlib.compress(lines)),
            _chunk(b"IEND", b""),
        ]
    )
    source = f"data:image/png;base64,{base64.b64encode(image).decode()}"
    return HeatMap(source=source, columns=columns, rows=rows)


def _level(value: int, top: int) -> int:
    """Return the colour of a value, from 1 on."""
    return 1 + (min(LEVELS - 1, value * LEVELS // top) if top > 0 else 0)


def _colour(level: int) -> bytes:
    share = level / (LEVELS - 1)
    return bytes(round(cold + (hot - cold) * share) for cold, hot in zip(_COLD, _HOT, strict=True))


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
