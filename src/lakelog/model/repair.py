"""Changes to a message before it is published again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """A new value, new headers, or both. None leaves a part as it was, and the key always stays.

    `content_type` describes the new value.
    """

    value: bytes | None = None
    content_type: str | None = None
    headers: Mapping[str, str] | None = None
