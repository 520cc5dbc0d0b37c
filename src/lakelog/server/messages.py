"""Converts JSON to messages and back: the meaning of `value`, `value_base64`, `key` and `key_base64`.

It stores nothing.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET

from lakelog.engine import Numbered
from lakelog.errors import InvalidRequest, LakelogError
from lakelog.model.json_values import shown_value, stored_value, text_of
from lakelog.model.limits import MAX_EXPIRES_MS
from lakelog.model.message import Message, Schedule, message_id
from lakelog.model.times import to_utc
from lakelog.server.large_values import LargeValues
from lakelog.wire.shapes import FetchedShape, MessageShape, Publish, ShownShape

COLUMNS = ("key", "value", "headers", "content_type", "correlation_id", "created_at", "expires_at", "idempotency_key")
MAX_EPOCH = 2**31 - 1

_PUBLISH = msgspec.json.Decoder(Publish)
_JSON_KINDS = {type(None): "null", bool: "a boolean", dict: "an object", list: "an array"}


class _HeadersOfMessage(msgspec.Struct):
    headers: dict[str, Any] | None = None


class _HeadersOfPublish(msgspec.Struct):
    """The headers of a publish, of any type. Nothing else of the body is decoded."""

    messages: list[_HeadersOfMessage]


_HEADERS = msgspec.json.Decoder(_HeadersOfPublish)

Shape = TypeVar("Shape", bound=ShownShape)
Decoded = tuple[list[Message], Numbered | None, int | None]


def decode_json(decoder: msgspec.json.Decoder[Any], body: bytes) -> Any:
    """Return the decoded body; raise `InvalidRequest` with the reason if it is malformed."""
    try:
        shape = decoder.decode(body)
        if not body.isascii():
            # Values are passed on unchanged, and msgspec does not validate them.
            body.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"The body is not UTF-8: {error.reason} at byte {error.start}.") from error
    except RecursionError as error:
        raise InvalidRequest("The JSON is nested too deeply.") from error
    except (msgspec.MsgspecError, ValueError) as error:
        raise InvalidRequest(f"{error}.") from error
    return shape


def decode_publish(body: bytes) -> Decoded:
    """Return the messages of a JSON publish, the producer's sequence, and the epoch that the caller knows."""
    try:
        shape: Publish = decode_json(_PUBLISH, body)
    except InvalidRequest as error:
        raise _fault_of_headers(body, error) or error from error.__cause__
    if len(shape.messages) == 1:
        messages = [message_of(shape.messages[0])]
    else:
        messages = [_message_at(index, message) for index, message in enumerate(shape.messages)]
    numbered = None
    if shape.producer is not None or shape.sequence is not None:
        if shape.producer is None or shape.sequence is None:
            raise InvalidRequest("Give both `producer` and `sequence`, or neither.")
        numbered = Numbered(producer=bytes.fromhex(shape.producer), sequence=shape.sequence)
    if shape.epoch is not None and shape.epoch > MAX_EPOCH:
        raise InvalidRequest("The epoch is not valid. Use the epoch in the topic's description.")
    return messages, numbered, shape.epoch


def _fault_of_headers(body: bytes, error: InvalidRequest) -> LakelogError | None:
    """Return an error that names the header that is not text, if the decoder refused one. The decoder does not."""
    if "headers[...]" not in error.detail:
        return None
    try:
        messages = _HEADERS.decode(body).messages
    except (msgspec.MsgspecError, ValueError, RecursionError):
        # The body has another fault behind this one.
        return None
    for index, message in enumerate(messages):
        for name, value in (message.headers or {}).items():
            if not isinstance(value, str):
                kind = _JSON_KINDS.get(type(value), "a number")
                fault = InvalidRequest(f"Header {name[:40]!r} must be text, not {kind}. Write it in quotes.")
                return fault.of_message(index)
    return None


def message_of(shape: MessageShape) -> Message:
    """Return one message in its stored form."""
    content_type = shape.content_type
    value: bytes | None
    if shape.value_base64 is not UNSET:
        if shape.value is not UNSET:
            raise InvalidRequest("Give `value` or `value_base64`, not both.")
        value = _from_base64("value_base64", shape.value_base64)
    elif shape.value is not UNSET:
        value, content_type = stored_value(bytes(shape.value), content_type)
    else:
        raise InvalidRequest("A message needs `value` (JSON or text, null for none) or `value_base64` (bytes).")
    key = shape.key.encode() if shape.key is not None else None
    if shape.key_base64 is not UNSET:
        if key is not None:
            raise InvalidRequest("Give `key` or `key_base64`, not both.")
        key = _from_base64("key_base64", shape.key_base64)
    return Message(
        value=value,
        key=key,
        headers=shape.headers,
        content_type=content_type,
        correlation_id=shape.correlation_id,
        created_at=None if shape.created_at is None else to_utc("created_at", shape.created_at),
        expires_at=None if shape.expires_at is None else to_utc("expires_at", shape.expires_at),
        expires_ms=_expires_ms(shape),
        partition=shape.partition,
        idempotency_key=shape.idempotency_key,
        schedule=None if shape.delay_ms is None and shape.deliver_at is None else _schedule(shape),
    )


def fetched_shapes(
    rows: Iterable[tuple[Any, ...]],
    incarnation: int,
    partition: int,
    first: int,
    appended_at: datetime,
    large: LargeValues,
) -> Iterator[FetchedShape]:
    """Return rows of `COLUMNS`, starting at the offset `first`, as a JSON fetch shows them."""
    for offset, row in enumerate(rows, start=first):
        identity = message_id(incarnation, partition, offset)
        yield shown_as(FetchedShape, row, identity, offset, large, appended_at=appended_at)


def shown_as(
    shape: Callable[..., Shape],
    row: tuple[Any, ...],
    identity: str,
    offset: int,
    large: LargeValues | None = None,
    **more: Any,
) -> Shape:
    """Return one row of `COLUMNS` for JSON, in a type that has at least the fields of `ShownShape`.

    With `large`, a large value is replaced by a mark, and the caller joins the encoded response.
    """
    key, value, headers, content_type, correlation_id, created_at, expires_at, idempotency_key = row
    text = text_of(key)
    shown: Any = shown_value(value, content_type)
    if shown is not None:
        value = None
    if large is not None:
        shown, value = large.shown(shown), large.shown(value)
    return shape(
        id=identity,
        offset=offset,
        key=text,
        key_base64=key if text is None else None,
        value=shown,
        value_base64=value,
        headers=headers,
        content_type=content_type,
        correlation_id=correlation_id,
        created_at=created_at,
        expires_at=expires_at,
        idempotency_key=idempotency_key,
        **more,
    )


def _message_at(index: int, shape: MessageShape) -> Message:
    try:
        return message_of(shape)
    except InvalidRequest as error:
        raise InvalidRequest(f"{error.detail} (message {index})", index=index) from error


def _from_base64(name: str, text: str) -> bytes:
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError as error:
        raise InvalidRequest(f"`{name}` is not base64: {error}.") from error


def _schedule(shape: MessageShape) -> Schedule:
    if shape.delay_ms is not None and shape.deliver_at is not None:
        raise InvalidRequest("Give `delay_ms` or `deliver_at`, not both.")
    return Schedule(
        delay_ms=shape.delay_ms,
        deliver_at=None if shape.deliver_at is None else to_utc("deliver_at", shape.deliver_at),
        mark=None if shape.schedule_id is None else bytes.fromhex(shape.schedule_id),
    )


def _expires_ms(shape: MessageShape) -> int | None:
    if shape.expires_ms is not None:
        if shape.expires_at is not None:
            raise InvalidRequest("Give `expires_ms` or `expires_at`, not both.")
        if shape.expires_ms > MAX_EXPIRES_MS:
            raise InvalidRequest("`expires_ms` ends after the year 9999; leave it out to keep the message.")
    return shape.expires_ms
