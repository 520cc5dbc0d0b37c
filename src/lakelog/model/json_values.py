"""The value of a message in JSON: JSON and text are shown, and other bytes are not."""

from __future__ import annotations

import msgspec
from msgspec import Raw

from lakelog.errors import InvalidRequest

JSON = "application/json"
TEXT = "text/plain"

_STRING = msgspec.json.Decoder(str)
_RAW = msgspec.json.Decoder(Raw)
_NULL = Raw(b"null")


def stored_value(raw: bytes, content_type: str | None) -> tuple[bytes | None, str | None]:
    """Return the bytes and the content type of a value in a JSON body."""
    if raw[:1] == b'"':
        if is_json(content_type):
            return raw, content_type
        try:
            return _STRING.decode(raw).encode(), content_type or TEXT
        except UnicodeDecodeError as error:
            raise InvalidRequest("A `value` is not UTF-8; send bytes as `value_base64`.") from error
    if raw == b"null":
        return None, content_type
    return raw, content_type or JSON


def shown_value(value: bytes | None, content_type: str | None) -> Raw | str | None:
    """Return the content of `value`; None if the bytes belong in `value_base64`."""
    if value is None:
        return _NULL
    if content_type is None:
        return None
    if content_type == JSON or is_json(content_type):
        return Raw(value) if _parses(value) else None
    return text_of(value) if content_type.startswith("text/") else None


def text_of(value: bytes | None) -> str | None:
    """Return the text of UTF-8 bytes; None if they are not UTF-8."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def is_json(content_type: str | None) -> bool:
    """Return whether the content type is JSON, with or without parameters."""
    return content_type is not None and content_type.partition(";")[0].strip().lower() == JSON


def _parses(value: bytes) -> bool:
    try:
        _RAW.decode(value)
        return value.isascii() or text_of(value) is not None
    except (msgspec.DecodeError, RecursionError):
        return False
