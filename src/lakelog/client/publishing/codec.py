"""Converts values to bytes and back, and keys to bytes.

Bytes are sent unchanged, text as UTF-8, everything else as JSON. The values of a typed topic are always JSON.
"""

from __future__ import annotations

import logging
import math
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from lakelog.client.functions import check_function
from lakelog.client.values import Outgoing
from lakelog.errors import InvalidRequest
from lakelog.model import limits
from lakelog.model.arguments import check_positive_seconds, check_time, check_whole, refusal
from lakelog.model.message import MARK_BYTES, Message, Schedule, fault_of
from lakelog.model.position import Receipt
from lakelog.model.times import to_utc

# Arrow takes longer to load than everything else together: only the methods that need it import it.
if TYPE_CHECKING:
    import pyarrow as pa

    from lakelog.client.publishing.columns import PartitionBatch

JSON = "application/json"
TEXT = "text/plain"

_SHOWN_BYTES = 40

_log = logging.getLogger(__name__)

T = TypeVar("T")
Key = str | bytes | int
Encoded = tuple[bytes | None, str | None]


def _plain(value: object) -> Any:
    """Encode pydantic models at any depth, which msgspec does not know."""
    dump = getattr(value, "model_dump", None)
    if dump is None:
        kind = type(value)
        raise TypeError(f"{kind.__module__}.{kind.__qualname__} has no JSON form; publish bytes, text or JSON types")
    return dump(mode="json")


_to_json = msgspec.json.Encoder(enc_hook=_plain).encode
_from_json = msgspec.json.Decoder().decode
# A named union: one written where it is used would be built again for every message.
_BYTES = (bytes, bytearray, memoryview)
# Encoders write NaN and infinity as null. Compiled, because `in` costs three times as much for bytes.
_has_null = re.compile(b"null").search
_LEAVES = frozenset({str, int, bool, type(None)})
_ENVELOPES = frozenset({Outgoing, Message})
"""Types of values that callers publish by mistake, instead of their content."""


def encode_any(value: object) -> Encoded:
    """Return the bytes of a value and their content type. None stays None: a message without a value."""
    kind = type(value)
    try:
        # Dicts first: most values are dicts, and each check costs a producer 1 % of its time.
        if kind is not dict:
            if kind is bytes:
                return value, None  # type: ignore[return-value]
            if kind is str:
                return value.encode(), TEXT  # type: ignore[attr-defined]
            if value is None:
                return None, None
            if isinstance(value, _BYTES):
                return bytes(value), None
            _refuse_envelope(kind)
        encoded = _to_json(value)
        if _has_null(encoded):
            _refuse_non_finite(value)
        return encoded, JSON
    except (TypeError, ValueError, OverflowError, RecursionError) as exc:
        raise InvalidRequest(f"The value cannot be encoded: {exc}.") from exc


def _refuse_envelope(kind: type) -> None:
    if kind in _ENVELOPES:
        raise InvalidRequest(
            f"The value is a lakelog.{kind.__name__}. Publish its content: its `value`, with its `key` and `headers` "
            "as arguments; or give `publish_many` a list of lakelog.Outgoing."
        )


def _refuse_non_finite(value: object) -> None:
    """Raise `InvalidRequest` if the value contains NaN or infinity, which JSON cannot hold."""
    if _is_finite(value):
        return
    left: list[tuple[str, object]] = [("", msgspec.to_builtins(value, enc_hook=_plain))]
    while left:
        path, part = left.pop()
        if isinstance(part, float) and not math.isfinite(part):
            where = f"contains {part} at {path}" if path else f"is {part}"
            raise InvalidRequest(f"The value {where}, and JSON has no such number. Publish None or text instead.")
        if isinstance(part, dict):
            left += [(f"{path}.{name}" if path else str(name), each) for name, each in part.items()]
        elif isinstance(part, list | tuple):
            left += [(f"{path}[{index}]", each) for index, each in enumerate(part)]


def _is_finite(value: object) -> bool:
    left = [value]
    while left:
        part: Any = left.pop()
        kind = type(part)
        if kind is dict:
            left += [each for each in part.values() if type(each) not in _LEAVES]
        elif kind is list or kind is tuple:
            left += [each for each in part if type(each) not in _LEAVES]
        elif isinstance(part, float):
            if not math.isfinite(part):
                return False
        elif type(plain := msgspec.to_builtins(part, enc_hook=_plain)) is not kind:
            left.append(plain)
    return True


def decode_any(raw: bytes | None, content_type: str | None) -> Any:
    if raw is None or content_type is None:
        return raw
    if content_type.startswith("text/"):
        return raw.decode()
    if content_type == JSON or content_type.endswith("+json"):
        return _from_json(raw)
    return raw


class Codec(Generic[T]):
    """Encodes and decodes the values of one topic."""

    def __init__(self, kind: type[T] | None = None) -> None:
        self.kind = kind
        self._parse: Callable[[bytes], T] | None = None
        if kind is not None:
            try:
                self._parse = getattr(kind, "model_validate_json", None) or msgspec.json.Decoder(kind).decode
            except TypeError as exc:
                raise InvalidRequest(
                    f"`type` must be a class that JSON can be decoded to, such as a dataclass, a pydantic model or a "
                    f"msgspec.Struct, not {kind!r}."
                ) from exc

    def encode(self, value: T) -> Encoded:
        if self.kind is None:
            return encode_any(value)
        if value is None:
            return None, None
        if isinstance(self.kind, type) and not isinstance(value, self.kind):
            raise InvalidRequest(f"This topic takes {self.kind.__name__}, not {type(value).__name__}.")
        try:
            dump = getattr(value, "model_dump_json", None)
            encoded = dump().encode() if dump else _to_json(value)
            if _has_null(encoded):
                _refuse_non_finite(value)
            return encoded, JSON
        except (TypeError, ValueError, OverflowError, RecursionError) as exc:
            raise InvalidRequest(f"The value cannot be encoded: {exc}.") from exc

    def decode(self, raw: bytes | None, content_type: str | None) -> T:
        try:
            if self._parse is not None and raw is not None:
                return self._parse(raw)
            if content_type == JSON and raw is not None:
                return _from_json(raw)  # type: ignore[no-any-return]
            return decode_any(raw, content_type)  # type: ignore[no-any-return]
        except (ValueError, msgspec.MsgspecError) as exc:
            what = getattr(self.kind, "__name__", None) or content_type
            raise InvalidRequest(
                f"The value is not valid as {what}: {str(exc).rstrip('.')}. It has the content type {content_type} and "
                f"begins with {_beginning(raw)}. Its bytes are in `raw`."
            ) from exc


def _beginning(raw: bytes | None) -> str:
    """Return the first bytes of a value, for an error message."""
    shown = (raw or b"")[:_SHOWN_BYTES]
    return f"{shown!r}…" if raw and len(raw) > _SHOWN_BYTES else repr(shown)


def key_bytes(key: Key) -> bytes:
    """Return the stored and hashed form of a key. A number becomes its decimal text."""
    if isinstance(key, bytes):
        return key
    if isinstance(key, str):
        return key.encode()
    if isinstance(key, int) and not isinstance(key, bool):
        return b"%d" % key
    raise InvalidRequest(f"`key` must be text, bytes or a whole number, not {key!r}.")


def field_of(value: object, name: str) -> Key | None:
    """Return the field that a topic's `key_field` names, of a JSON object or of an object with attributes."""
    found = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
    return found


class MessageBuilder(Generic[T]):
    """Builds messages of one topic: validates, chooses the key, encodes, checks limits."""

    def __init__(
        self,
        codec: Codec[T],
        key: Callable[[T], Key | None] | None = None,
        validate: Callable[[T], bool | str] | None = None,
        on_publish: Callable[[Receipt], object] | None = None,
    ) -> None:
        for name, function in (("key", key), ("validate", validate)):
            if function is not None:
                check_function(name, function, ("value",))
        if on_publish is not None:
            check_function("on_publish", on_publish, ("receipt",))
        self.codec = codec
        self.key = key
        self.validate = validate
        self._on_publish = on_publish

    def check(self, value: T) -> None:
        """Raise if the topic's validator refuses the value."""
        if self.validate is not None:
            verdict = self.validate(value)
            if verdict is not True:
                reason = verdict if isinstance(verdict, str) else f"`validate` returned {verdict!r}, not True"
                raise InvalidRequest(f"The value was refused before it was sent: {reason}.")

    def check_table(self, table: pa.Table) -> None:
        """Raise if the topic's validator refuses a row. It gets the values that a reader of the messages would get."""
        if self.validate is None or "value" not in table.schema.names:
            return
        kinds = table.column("content_type").to_pylist() if "content_type" in table.schema.names else None
        for index, stored in enumerate(table.column("value").to_pylist()):
            raw = stored.encode() if isinstance(stored, str) else stored
            try:
                self.check(self.codec.decode(raw, None if kinds is None else kinds[index]))
            except InvalidRequest as error:
                raise error.of_message(index) from error

    def settled(self, parts: Sequence[PartitionBatch], incarnation: int) -> None:
        """Call the topic's hook for the published messages of a request, in their order."""
        if self._on_publish is not None:
            from lakelog.client.publishing.columns import results_of

            self.published(each for each in results_of(parts, incarnation) if isinstance(each, Receipt))

    def published(self, receipts: Iterable[Receipt]) -> None:
        """Call the topic's hook. The messages are in the log, so an error of the hook is logged and not raised."""
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
            expires_at=absolute_expiry(outgoing.expires),
            expires_ms=relative_expiry(outgoing.expires),
            partition=outgoing.partition,
            idempotency_key=outgoing.idempotency_key,
        )
        if outgoing.delay is not None or outgoing.deliver_at is not None:
            message.schedule = schedule_of(outgoing.delay, outgoing.deliver_at)
        fault = fault_of(message)
        if fault is not None:
            raise fault
        return message


def relative_expiry(expires: timedelta | datetime | None) -> int | None:
    """Return the milliseconds of a relative expiry, at least one."""
    if not isinstance(expires, timedelta):
        return None
    if (ms := expires // timedelta(milliseconds=1)) > limits.MAX_EXPIRES_MS:
        raise InvalidRequest("`expires` ends after the year 9999. Leave it out to keep the message.")
    return max(1, ms)


def absolute_expiry(expires: timedelta | datetime | None) -> datetime | None:
    """Return the time of an absolute expiry. Return None for a relative one, which depends on the database's clock."""
    if expires is None or isinstance(expires, timedelta):
        return None
    if not isinstance(expires, datetime):
        raise refusal("expires", "a timedelta from now, or a datetime with a time zone", expires)
    return check_time("expires", expires)


def schedule_of(delay: timedelta | float | None, deliver_at: datetime | None) -> Schedule:
    """Return when a delayed message is published, with a new mark."""
    mark = secrets.token_bytes(MARK_BYTES)
    if deliver_at is not None:
        if delay is not None:
            raise InvalidRequest("Give `delay` or `deliver_at`, not both.")
        return Schedule(deliver_at=to_utc("deliver_at", check_time("deliver_at", deliver_at)), mark=mark)
    ms = max(1, round(check_positive_seconds("delay", delay) * 1000))
    if ms > limits.MAX_DELAY_MS:
        raise InvalidRequest(f"`delay` must be at most {limits.MAX_DELAY_MS // 86_400_000} days.")
    return Schedule(delay_ms=ms, mark=mark)


def check_values(values: object) -> None:
    """Raise if the argument is a single value instead of an iterable of values."""
    # A pydantic model is iterable too: over its fields.
    if isinstance(values, str | bytes | bytearray | memoryview | Mapping) or hasattr(values, "model_dump"):
        raise InvalidRequest(
            f"publish_many takes a list of values, not one {type(values).__name__}. "
            "Publish one message with publish(value), or write publish_many([value])."
        )
    if not isinstance(values, Iterable):
        raise InvalidRequest(f"publish_many takes a list or another iterable of values, not {type(values).__name__}.")


def check_partition(partition: int | None) -> None:
    if partition is not None:
        check_whole("partition", partition, 0, limits.MAX_PARTITIONS - 1)
