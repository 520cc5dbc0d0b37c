"""Hashes that identify a message and an idempotency key. `partitioning` chooses partitions."""

from __future__ import annotations

import struct
from hashlib import blake2b

from lakelog.model.message import Message

_LENGTH = struct.Struct("<i")
_ABSENT = _LENGTH.pack(-1)
_TRACE_CONTEXT = frozenset({"traceparent", "tracestate"})
"""Headers that name the span of one publish, and so differ between two publishes of the same message."""


def body_hash(message: Message) -> bytes:
    """Return 16 bytes that tell whether two publishes with one idempotency key are the same message.

    The hash covers key, value, headers in any order, content type and correlation id, each with its length in front so
    that fields cannot run together. Times, routing and trace context are left out because a retry may differ in them.
    """
    parts: list[bytes] = []
    for field in (message.key, message.value, message.content_type, message.correlation_id):
        _add(parts, field)
    for name, text in sorted((message.headers or {}).items()):
        if name not in _TRACE_CONTEXT:
            _add(parts, name)
            _add(parts, text)
    return blake2b(b"".join(parts), digest_size=16).digest()


def key_hash(text: str) -> bytes:
    """Return the 16 bytes under which an idempotency key is stored."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _add(parts: list[bytes], field: bytes | str | None) -> None:
    if field is None:
        parts.append(_ABSENT)
        return
    data = field.encode("utf-8", "surrogatepass") if isinstance(field, str) else field
    parts.append(_LENGTH.pack(len(data)))
    parts.append(data)
