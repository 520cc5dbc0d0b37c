"""Values to bytes and back, and keys to bytes.

bytes go as they are, text as UTF-8, everything else as JSON; a typed topic is JSON throughout. Nothing is sent here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar

import msgspec

from lakelog.client.values import Outgoing
from lakelog.errors import InvalidRequest
from lakelog.model import limits
from lakelog.model.message import Message, fault_of
from lakelog.model.position import Receipt

JSON = "application/json"
TEXT = "text/plain"

_log = logging.getLogger(__name__)

T = TypeVar("T")
Key = str | bytes | int
Encoded = tuple[bytes | None, str | None]


def _plain(value: object) -> Any:
    """What msgspec does not know by itself: pydantic models, wherever they stand."""
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"{type(value).__name__} has no JSON form; publish bytes, text or something JSON knows")
    return dump(mode="json")


_to_json = msgspec.json.Encoder(enc_hook=_plain).encode
_from_json = msgspec.json.Decoder().decode
# A name for it: a union written where it is used would be built again for every message.
_BYTES = (bytes, bytearray, memoryview)


def encode_any(value: object) -> Encoded:
    """The bytes of a value and their content type; None stays None, which is a message without a value."""
    kind = type(value)
    if kind is bytes:
        return value, None  # type: ignore[return-value]
    try:
        if kind is str:
            return value.encode(), TEXT  # type: ignore[attr-defined]
        if value is None:
            return None, None
        if isinstance(value, _BYTES):
            return bytes(value), None
        return _to_json(value), JSON
    except (TypeError, ValueError, OverflowError, RecursionError) as exc:
        raise InvalidRequest(f"The value cannot be encoded: {exc}.") from exc


def decode_any(raw: bytes | None, content_type: str | None) -> Any:
    if raw is None or content_type is None:
        return raw
    if content_type.startswith("text/"):
        return raw.decode()
    if content_type == JSON or content_type.endswith("+json"):
        return _from_json(raw)
    return raw


class Codec(Generic[T]):
    """How the values of one topic are encoded and decoded."""

    def __init__(self, kind: type[T] | None = None) -> None:
        self.kind = kind
        self._parse: Callable[[bytes], T] | None = None
        if kind is not None:
            self._parse = getattr(kind, "model_validate_json", None) or msgspec.json.Decoder(kind).decode

    def encode(self, value: T) -> Encoded:
        if self.kind is None:
            return encode_any(value)
        if value is None:
            return None, None
        if isinstance(self.kind, type) and not isinstance(value, self.kind):
            raise InvalidRequest(f"This topic takes {self.kind.__name__}, not {type(value).__name__}.")
        try:
            dump = getattr(value, "model_dump_json", None)
            return (dump().encode() if dump else _to_json(value)), JSON
        except (TypeError, ValueError, OverflowError, RecursionError) as exc:
            raise InvalidRequest(f"The value cannot be encoded: {exc}.") from exc

    def decode(self, raw: bytes | None, content_type: str | None) -> T:
        try:
            if self._parse is None or raw is None:
                return decode_any(raw, content_type)  # type: ignore[no-any-return]
            return self._parse(raw)
        except (ValueError, msgspec.MsgspecError) as exc:
            what = getattr(self.kind, "__name__", None) or content_type
            raise InvalidRequest(f"The message is not valid as {what}: {exc}. Its bytes are in `raw`.") from exc


def key_bytes(key: Key) -> bytes:
    """A key as it is stored and hashed; a number is its decimal text."""
    if isinstance(key, bytes):
        return key
    if isinstance(key, str):
        return key.encode()
    if isinstance(key, int) and not isinstance(key, bool):
        return b"%d" % key
    raise InvalidRequest(f"A key is text, bytes or a whole number, not {type(key).__name__}.")


def field_of(value: object, name: str) -> Key | None:
    """The field that a topic's `key_field` names, of a JSON object or of an object with attributes."""
    found = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
    return found


class Maker(Generic[T]):
    """Makes messages of one topic out of what a caller gives: validates, chooses the key, encodes, checks limits."""

    def __init__(
        self,
        codec: Codec[T],
        key: Callable[[T], Key | None] | None = None,
        validate: Callable[[T], bool | str] | None = None,
        on_publish: Callable[[Receipt], object] | None = None,
    ) -> None:
        self.codec = codec
        self.key = key
        self.validate = validate
        self._on_publish = on_publish

    def check(self, value: T) -> None:
        """Refuses what the topic's validator refuses."""
        if self.validate is not None:
            verdict = self.validate(value)
            if verdict is not True:
                reason = verdict if isinstance(verdict, str) else "the topic's validator said no"
                raise InvalidRequest(f"The value was refused before it was sent: {reason}.")

    def published(self, receipts: Iterable[Receipt]) -> None:
        """Tells the topic's hook. The messages are in the log: what goes wrong in the hook is logged, not raised."""
        if self._on_publish is not None:
            for receipt in receipts:
                try:
                    self._on_publish(receipt)
                except Exception:
                    _log.exception("the hook after a publish failed for message %s", receipt.id)

    def key_of(self, value: T, given: Key | None, key_field: str | None) -> bytes | None:
        key = given
        if key is None and self.key is not None:
            key = self.key(value)
        if key is None and key_field is not None:
            key = field_of(value, key_field)
        return None if key is None else key_bytes(key)

    def make(self, outgoing: Outgoing[T], key_field: str | None) -> Message:
        self.check(outgoing.value)
        check_partition(outgoing.partition)
        raw, content_type = self.codec.encode(outgoing.value)
        message = Message(
            value=raw,
            key=self.key_of(outgoing.value, outgoing.key, key_field),
            headers=outgoing.headers,
            content_type=outgoing.content_type or content_type,
            correlation_id=outgoing.correlation_id,
            created_at=datetime.now(UTC),
            expires_at=expiry(outgoing.expires),
            partition=outgoing.partition,
            idempotency_key=outgoing.idempotency_key,
        )
        fault = fault_of(message)
        if fault is not None:
            raise fault
        return message


def expiry(expires: timedelta | datetime | None) -> datetime | None:
    if isinstance(expires, timedelta):
        return datetime.now(UTC) + expires
    if expires is not None and expires.tzinfo is None:
        raise InvalidRequest("A time needs its zone: give an aware datetime, or a timedelta from now.")
    return expires


def check_partition(partition: int | None) -> None:
    if partition is not None and not 0 <= partition < limits.MAX_PARTITIONS:
        raise InvalidRequest(f"Partitions are numbered from 0 to {limits.MAX_PARTITIONS - 1}, not {partition}.")
