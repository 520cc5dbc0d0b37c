"""Decodes JSON bodies and encodes JSON responses."""

from __future__ import annotations

import msgspec

from lakelog.errors import InvalidRequest
from lakelog.server.calls import JSON_TYPE, Call, HttpError, Response

_encode = msgspec.json.Encoder().encode


async def json_body(call: Call) -> bytes:
    """Return the body if its content type is JSON."""
    kind = call.headers.get(b"content-type", b"")
    if kind != b"application/json" and kind.partition(b";")[0].strip().lower() != b"application/json":
        raise HttpError(415, "Send the body as application/json, and say so in Content-Type.")
    return await call.body()


async def optional_json_body(call: Call) -> bytes:
    """Return the body if it is JSON. A missing body counts as an empty object."""
    body = await call.body()
    if body and call.headers.get(b"content-type", b"").partition(b";")[0].strip().lower() != b"application/json":
        raise HttpError(415, "Send the body as application/json, and say so in Content-Type.")
    return body or b"{}"


def json_response(shape: object, status: int = 200) -> Response:
    return Response(status, _encode(shape), JSON_TYPE)


def check_identity(name: str, text: str | None, limit: int) -> None:
    """Raise an error for a text that is too long in UTF-8; its type limits only characters."""
    if text is not None and not text.isascii() and len(text.encode()) > limit:
        raise InvalidRequest(f"`{name}` must be at most {limit} bytes.")
