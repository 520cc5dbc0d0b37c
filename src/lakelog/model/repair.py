"""Changes to a message before it is published again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """A new value, new headers, or both. None keeps the current value or headers. The key never changes.

    `content_type` describes the new value.
    """

    value: bytes | None = None
    content_type: str | None = None
    headers: Mapping[str, str] | None = None
