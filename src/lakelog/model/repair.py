"""What is changed about a message before it is published again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """A new value, new headers, or both; None: as it was. The key stays: another one would belong elsewhere."""

    value: bytes | None = None
    headers: Mapping[str, str] | None = None
