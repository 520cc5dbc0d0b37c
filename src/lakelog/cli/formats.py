"""The input formats of `lakelog publish`. The modules `lines` and `rows` implement them."""

from __future__ import annotations

from enum import StrEnum


class Format(StrEnum):
    """How the input is split into messages."""

    AUTO = "auto"
    LINES = "lines"
    JSONL = "jsonl"
    JSON = "json"
    MESSAGES = "messages"
    RAW = "raw"
    CSV = "csv"
    PARQUET = "parquet"
