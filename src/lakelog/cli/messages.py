"""Messages as commands print them: JSON with the fields of the HTTP API, or one line for people."""

from __future__ import annotations

import base64
import functools
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from lakelog.cli.output import clean
from lakelog.cli.units import show_time

if TYPE_CHECKING:
    from lakelog.client.messages import ReceivedMessage

JSON = "application/json"


def shape(message: ReceivedMessage[Any]) -> dict[str, object]:
    """JSON and text as `value`, other bytes as `value_base64`; fields without content are left out."""
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


def text_line(message: ReceivedMessage[Any]) -> str:
    """Place, time, key and value; all of the value when piped, what fits a line or so when a person reads it."""
    key = "-" if message.key is None else clean(message.key.decode(errors="replace"))
    place = f"{message.partition}:{message.offset}"
    return f"{place:<10} {show_time(message.appended_at)}  {key:<16} {shown(message.raw)}"


def shown(raw: bytes | None) -> str:
    """A value on one line."""
    if raw is None:
        return "(no value)"
    try:
        text = clean(raw.decode())
    except UnicodeDecodeError:
        return f"({len(raw)} bytes; --json shows them)"
    longest = _longest()
    return text if len(text) <= longest else text[:longest] + "…"


@functools.cache
def _longest() -> int:
    return 1000 if sys.stdout.isatty() else sys.maxsize


def key_shape(key: bytes | None) -> dict[str, object]:
    """`key` where it is text, else `key_base64`."""
    if key is None:
        return {}
    try:
        return {"key": key.decode()}
    except UnicodeDecodeError:
        return {"key_base64": base64.b64encode(key).decode()}


def value_shape(raw: bytes | None, content_type: str | None) -> dict[str, object]:
    """`value` where it is JSON or text, else `value_base64`."""
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
