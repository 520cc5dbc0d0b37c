"""Large values in JSON responses: encoded in slices and joined, so that no step stops the other threads for long.

An encoder keeps the interpreter for itself until it returns. For a response of 16 MiB that is a tenth of a second, in
which the event loop handles no call. Joining bytes does not keep it.
"""

from __future__ import annotations

import binascii
import re
import secrets
from typing import TypeVar

import msgspec

LARGE_BYTES = 32 << 10
"""The size from which a value is encoded in slices."""
SLICE_BYTES = 48 << 10
"""The size of a slice of bytes: a multiple of 3, so that slices of base64 can be joined."""
SLICE_CHARACTERS = 16 << 10

_encode = msgspec.json.Encoder().encode
_Shown = TypeVar("_Shown", str, bytes, msgspec.Raw, None)


class LargeValues:
    """The large values of one response. The response is encoded with a mark in place of each of them."""

    def __init__(self) -> None:
        # A value cannot contain the mark, because it is drawn after the value was published.
        self._mark = secrets.token_hex(16)
        self._values: list[list[bytes]] = []

    def shown(self, value: _Shown) -> _Shown | msgspec.Raw:
        """Return the value, or a mark if it is large."""
        if value is None or len(memoryview(value) if isinstance(value, msgspec.Raw) else value) < LARGE_BYTES:
            return value
        self._values.append(_slices(value))
        return msgspec.Raw(f'"{self._mark}{len(self._values) - 1}"'.encode())

    def join(self, body: bytes) -> bytes:
        """Return the encoded response with the values in place of their marks."""
        if not self._values:
            return body
        parts: list[bytes] = []
        # Every second part is the number of a value.
        for number, part in enumerate(re.split(rf'"{self._mark}(\d+)"'.encode(), body)):
            parts += self._values[int(part)] if number % 2 else [part]
        return b"".join(parts)


def _slices(value: str | bytes | msgspec.Raw) -> list[bytes]:
    """Return the JSON of a value in parts."""
    if isinstance(value, msgspec.Raw):
        return [bytes(value)]
    if isinstance(value, bytes):
        found = [
            binascii.b2a_base64(value[first : first + SLICE_BYTES], newline=False)
            for first in range(0, len(value), SLICE_BYTES)
        ]
    else:
        found = [
            _encode(value[first : first + SLICE_CHARACTERS])[1:-1] for first in range(0, len(value), SLICE_CHARACTERS)
        ]
    return [b'"', *found, b'"']
