"""Hashes that recognise a message and an idempotency key. They place nothing: that is `partitioning`."""

from __future__ import annotations

import struct
from hashlib import blake2b

from lakelog.model.message import Message

_LENGTH = struct.Struct("<i")
_ABSENT = _LENGTH.pack(-1)


def body_hash(message: Message) -> bytes:
    """16 bytes that tell whether two publishes under one idempotency key are the same message.

    Over key, value, headers in any order, content type and correlation id, each led by its length, so that no two
    fields can run together. Times and routing are left out: a retry may differ in them.
    """
    parts: list[bytes] = []
    for field in (message.key, message.value, message.content_type, message.correlation_id):
        _add(parts, field)
    for name, text in sorted((message.headers or {}).items()):
        _add(parts, name)
        _add(parts, text)
    return blake2b(b"".join(parts), digest_size=16).digest()


def key_hash(text: str) -> bytes:
    """16 bytes under which an idempotency key is remembered."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _add(parts: list[bytes], field: bytes | str | None) -> None:
    if field is None:
        parts.append(_ABSENT)
        return
    data = field.encode("utf-8", "surrogatepass") if isinstance(field, str) else field
    parts.append(_LENGTH.pack(len(data)))
    parts.append(data)
