"""The names of input formats. What they mean stands in `lines`; `--help` needs only the names."""

from __future__ import annotations

from enum import StrEnum


class Format(StrEnum):
    """How input is cut into messages."""

    AUTO = "auto"
    LINES = "lines"
    JSONL = "jsonl"
    MESSAGES = "messages"
    RAW = "raw"
