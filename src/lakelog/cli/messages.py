"""Output of messages: JSON with the fields of the HTTP API, or one line of text each."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from datetime import UTC
from typing import TYPE_CHECKING, Any

import msgspec

from lakelog.cli.output import clean, is_watched, print_line
from lakelog.model.display import show_time

if TYPE_CHECKING:
    from lakelog.client.reading.messages import ReceivedMessage

JSON = "application/json"
_LONGEST = 1000


def shape(message: ReceivedMessage[Any]) -> dict[str, object]:
    """Return JSON and text as `value`, other bytes as `value_base64`, and no empty fields."""
    fields: dict[str, object] = {
        "id": message.id,
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "appended_at": message.appended_at,
        **key_shape(message.key),
        **value_shape(message.raw, message.content_type),
    }
    further = {
        "headers": dict(message.headers) or None,
        "content_type": message.content_type,
        "correlation_id": message.correlation_id,
        "idempotency_key": message.idempotency_key,
        "created_at": message.created_at,
        "expires_at": message.expires_at,
    }
    return fields | {name: found for name, found in further.items() if found is not None}


def json_line(message: ReceivedMessage[Any]) -> str:
    return msgspec.json.encode(shape(message)).decode()


def print_texts(messages: Iterable[ReceivedMessage[Any]]) -> int:
    """Print a line for each message when it arrives, with headings on a terminal; return the number of messages."""
    watched, count = is_watched(), 0
    for count, message in enumerate(messages, start=1):
        if watched and count == 1:
            print_line(_line("P:OFFSET", "APPENDED (UTC)", "KEY", "VALUE"))
        key = "-" if message.key is None else clean(message.key.decode(errors="replace"))
        time = f"{message.appended_at.astimezone(UTC):%Y-%m-%d %H:%M:%S}" if watched else show_time(message.appended_at)
        print_line(_line(f"{message.partition}:{message.offset}", time, key, shown(message.raw)))
    return count


def _line(place: str, time: str, key: str, value: str) -> str:
    return f"{place:<9} {time:<19}  {key:<10}  {value}"


def shown(raw: bytes | None) -> str:
    """Return a value on one line; on a terminal, cut it to a few lines' length."""
    if raw is None:
        return "(no value)"
    try:
        text = clean(raw.decode())
    except UnicodeDecodeError:
        return f"({len(raw)} bytes; --json shows them)"
    return text if len(text) <= _LONGEST or not is_watched() else text[:_LONGEST] + "…"


def key_shape(key: bytes | None) -> dict[str, object]:
    """Return a key as `key` if it is text, otherwise as `key_base64`."""
    if key is None:
        return {}
    try:
        return {"key": key.decode()}
    except UnicodeDecodeError:
        return {"key_base64": base64.b64encode(key).decode()}


def value_shape(raw: bytes | None, content_type: str | None) -> dict[str, object]:
    """Return a value as `value` if it is JSON or text, otherwise as `value_base64`."""
    if raw is None:
        return {"value": None}
    try:
        if content_type == JSON:
            raw.decode()
            return {"value": msgspec.json.decode(raw, type=msgspec.Raw)}
        if content_type and content_type.startswith("text/"):
            return {"value": raw.decode()}
    except (UnicodeDecodeError, msgspec.MsgspecError):
        pass
    return {"value_base64": base64.b64encode(raw).decode()}
