"""The names of input formats, which `--help` needs. `lines` implements them."""

from __future__ import annotations

from enum import StrEnum


class Format(StrEnum):
    """How input becomes messages."""

    AUTO = "auto"
    LINES = "lines"
    JSONL = "jsonl"
    JSON = "json"
    MESSAGES = "messages"
    RAW = "raw"
