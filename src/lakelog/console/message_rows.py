"""Messages as pages and downloads show them: one row each, with the masks of its topic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

import msgspec

from lakelog.client.reading.messages import ReceivedMessage
from lakelog.client.reading.parquet import to_parquet
from lakelog.model.json_values import shown_value, text_of
from lakelog.model.masks import MASK, MASKED, Masks

SHORT = 160
"""The most characters of a value in a table."""
LONG = 64 << 10
"""The most characters of a value on the page of its message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A message of a topic."""

    id: str
    partition: int
    offset: int
    appended_at: datetime
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, str]
    content_type: str | None
    correlation_id: str | None
    idempotency_key: str | None
    lineage: str | None

    @property
    def key_text(self) -> str | None:
        """The key as text, with replacement characters; None if there is none."""
        return None if self.key is None else self.key.decode(errors="replace")

    @property
    def short(self) -> str:
        """The value on one line, cut to a short length."""
        text = " ".join(_text(self.value, self.content_type)[: 4 * SHORT].split())
        return text if len(text) <= SHORT else f"{text[:SHORT]}…"

    @property
    def long(self) -> str:
        """The value, with JSON on several lines."""
        value = self.value
        shown = shown_value(value, self.content_type) if value is not None and len(value) <= LONG else None
        if isinstance(shown, msgspec.Raw):
            return msgspec.json.format(bytes(shown), indent=2).decode()
        text = _text(value, self.content_type)
        return text if len(text) <= LONG else f"{text[:LONG]}\n… ({len(text):,} characters)"

    def line(self) -> bytes:
        """Return the message as a line of JSON, with the fields of a fetch."""
        key = text_of(self.key)
        shown = MASK if self.value == MASKED else shown_value(self.value, self.content_type)
        named: dict[str, Any] = {
            "id": self.id,
            "partition": self.partition,
            "offset": self.offset,
            "appended_at": self.appended_at,
            "key": key,
            "key_base64": self.key if key is None else None,
            "value_base64": self.value if shown is None else None,
            "headers": dict(self.headers) or None,
            "content_type": self.content_type,
            "correlation_id": self.correlation_id,
            "idempotency_key": self.idempotency_key,
            "lineage": self.lineage,
        }
        given = {name: each for name, each in named.items() if each is not None}
        return msgspec.json.encode(given if shown is None else {**given, "value": shown}) + b"\n"


def lines_of(rows: Sequence[Row]) -> bytes:
    """Return messages as lines of JSON."""
    return b"".join(row.line() for row in rows)


def parquet_of(rows: Sequence[Row]) -> bytes:
    """Return messages as a Parquet file, with the columns of a fetch and their ids."""
    columns = {each.name: [getattr(row, each.name) for row in rows] for each in fields(Row)}
    return to_parquet({**columns, "headers": [list(row.headers.items()) for row in rows]})


def row_of(message: ReceivedMessage[object], masks: Masks) -> Row:
    """Return a message that a fetch returned, as people see it."""
    return Row(
        id=message.id,
        partition=message.partition,
        offset=message.offset,
        appended_at=message.appended_at,
        key=masks.key(message.key),
        value=masks.value(message.raw),
        headers=masks.shown_headers(message.headers),
        content_type=message.content_type,
        correlation_id=masks.text("correlation_id", message.correlation_id),
        idempotency_key=masks.text("idempotency_key", message.idempotency_key),
        lineage=message.lineage,
    )


def rows_of(messages: Iterable[ReceivedMessage[object]], masks: Masks) -> list[Row]:
    """Return messages as people see them. Call it in a thread of its own: masks parse values."""
    return [row_of(message, masks) for message in messages]


def _text(value: bytes | None, content_type: str | None) -> str:
    """Return a value as text; bytes that are no text are only counted."""
    if value is None:
        return "(no value)"
    text = text_of(value)
    return f"({len(value):,} bytes)" if text is None else text
