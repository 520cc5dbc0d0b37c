"""Validation of values against the schemas of topics. All ways of publishing pass it; it writes nothing.

A value is parsed once and checked in about 2 µs. Validators never read other documents, and their patterns match in
linear time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, TypeVar

import jsonschema_rs
import msgspec

from lakelog.batches import decode_columns, rows
from lakelog.engine.log.threads import INLINE_BYTES, Threads
from lakelog.errors import InvalidSchema, SchemaViolation, Unavailable
from lakelog.model.json_values import is_json
from lakelog.model.message import Message
from lakelog.model.schema_nodes import escaped
from lakelog.model.topic import Topic
from lakelog.storage.store import Catalog, Payload

_CACHE_SIZE = 1000
_SHOWN = 300
_COLUMNS = ("value", "content_type")
# An encoded batch is compressed, so that its time depends on its messages as well.
_EXPANSION = 4
_MESSAGE_BYTES = 1024
_SUBJECT = "the value"
"""The word for a value in messages. The value itself may be large or secret."""
_decode = msgspec.json.Decoder().decode
_is_json = lru_cache(maxsize=256)(is_json)

Index = TypeVar("Index", bound=int)
Pair = tuple[bytes | None, str | None]
"""The bytes and the content type of a value."""


def compiled(text: str) -> jsonschema_rs.Validator:
    """Return the validator of a schema in JSON; raise `InvalidSchema` if its keywords are not valid."""
    try:
        return jsonschema_rs.Draft202012Validator(
            text, offline=True, mask=_SUBJECT, pattern_options=jsonschema_rs.RegexOptions()
        )
    except jsonschema_rs.ValidationError as error:
        where = "".join(f"/{escaped(str(step))}" for step in error.instance_path)
        hint = ""
        if error.message.endswith('is not a "regex"'):
            hint = " A pattern has no lookaround and no back-references, because it must match in linear time."
        reason = error.message[:_SHOWN].rstrip(".")
        raise InvalidSchema(f"The schema is not valid at #{where}: {reason}.{hint}") from error
    except ValueError as error:
        raise InvalidSchema(f"The schema is not valid: {str(error)[:_SHOWN]}.") from error


class SchemaValidator:
    """Validates values by one version of a topic's schema."""

    def __init__(self, topic: str, version: int, text: str) -> None:
        self._topic = topic
        self._version = version
        self._validator = compiled(text)
        self._accepts: Callable[[Any], bool] = self._validator.is_valid

    def accepts(self, value: bytes | None, content_type: str | None) -> bool:
        """Return whether the topic accepts the value. A message without a value is always accepted."""
        if value is None:
            return True
        try:
            return _is_json(content_type) and self._accepts(_decode(value))
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return False

    def refusals(self, values: Iterable[tuple[Index, Pair]]) -> dict[Index, SchemaViolation]:
        """Return the reasons why values are refused, by their numbers."""
        return {number: self.refusal(*pair) for number, pair in values if not self.accepts(*pair)}

    def batch_refusals(self, payloads: Mapping[Index, Payload]) -> dict[Index, SchemaViolation]:
        """Return the reasons why encoded batches are refused: the first of each, which names the message in it."""
        found: dict[Index, SchemaViolation] = {}
        for number, payload in payloads.items():
            batch = decode_columns(payload.data, _COLUMNS)
            pairs = () if batch is None else rows(batch, _COLUMNS)
            index, pair = next(((n, pair) for n, pair in enumerate(pairs) if not self.accepts(*pair)), (0, None))
            if pair is not None:
                found[number] = named(self.refusal(*pair), index)
        return found

    def refusal(self, value: bytes | None, content_type: str | None) -> SchemaViolation:
        """Return the reason why a value is refused."""
        if not _is_json(content_type):
            shown = "no content type" if content_type is None else f"content type {content_type[:80]!r}"
            return self._refusal("", "content_type", f"it has {shown}, and must be application/json")
        try:
            self._validator.validate(_decode(value or b""))
        except jsonschema_rs.ValidationError as error:
            return self._refusal(_field(error), error.kind.name, error.message[:_SHOWN])
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return self._refusal("", "json", f"it is not JSON: {error}")
        except (ValueError, RecursionError):
            return self._refusal("", "json", "it is nested too deeply, or has a number that cannot be validated")
        return self._refusal("", "json", "it cannot be validated")

    def _refusal(self, field: str, rule: str, reason: str) -> SchemaViolation:
        where = f"The value at {field}" if field else "The value"
        detail = (
            f"{where} does not match schema version {self._version} of topic '{self._topic}': {reason} (rule `{rule}`)."
        )
        return SchemaViolation(detail, topic=self._topic, field=field, rule=rule, schema_version=self._version)


class Validators:
    """The validators of all topics; one per engine. A validator is cached for as long as its version is in use."""

    def __init__(self, catalog: Catalog, threads: Threads) -> None:
        self._catalog = catalog
        self._threads = threads
        self._cached: dict[tuple[int, int], SchemaValidator] = {}

    def accepts(self, topic: Topic, message: Message) -> bool:
        """Return whether a small message is valid. A False means that the caller must ask `refusals`."""
        schema = topic.settings.schema
        if schema is None:
            return True
        validator = self._cached.get((topic.incarnation, schema.version))
        value = message.value
        return (
            validator is not None
            and (value is None or len(value) <= INLINE_BYTES)
            and validator.accepts(value, message.content_type)
        )

    async def refusals(self, topic: Topic, messages: Mapping[Index, Message]) -> dict[Index, SchemaViolation]:
        """Return the reasons why messages are refused, by their numbers. Large ones are validated in a thread."""
        validator = await self._find(topic)
        if validator is None:
            return {}
        size = sum(len(message.value or b"") for message in messages.values())
        pairs = [(number, (message.value, message.content_type)) for number, message in messages.items()]
        return await self._threads.run(size, validator.refusals, pairs)

    async def batch_refusals(self, topic: Topic, payloads: Mapping[Index, Payload]) -> dict[Index, SchemaViolation]:
        """Return the reasons why encoded batches are refused, by their numbers. Large ones are read in a thread."""
        validator = await self._find(topic)
        if validator is None:
            return {}
        size = sum(_EXPANSION * len(payload.data) + _MESSAGE_BYTES * payload.count for payload in payloads.values())
        return await self._threads.run(size, validator.batch_refusals, payloads)

    async def _find(self, topic: Topic) -> SchemaValidator | None:
        schema = topic.settings.schema
        if schema is None:
            return None
        key = (topic.incarnation, schema.version)
        if key not in self._cached:
            record = await self._catalog.schema_find(*key)
            if record is None:
                raise Unavailable(
                    f"The schema of topic '{topic.name}' was removed during the call; try again.", topic=topic.name
                )
            if len(self._cached) >= _CACHE_SIZE:
                self._cached.clear()
            self._cached[key] = SchemaValidator(topic.name, schema.version, record.text)
        return self._cached[key]


def named(error: SchemaViolation, index: int) -> SchemaViolation:
    """Return the error, naming the message among several."""
    found = error.of_message(index)
    assert isinstance(found, SchemaViolation)
    return found


def _field(error: jsonschema_rs.ValidationError) -> str:
    """Return the field that an error is about, as a JSON Pointer; a missing or unknown property by its own name."""
    path = "".join(f"/{escaped(str(step))}" for step in error.instance_path)
    kind = error.kind
    if isinstance(kind, jsonschema_rs.ValidationErrorKind.Required):
        return f"{path}/{escaped(kind.property)}"
    if isinstance(kind, jsonschema_rs.ValidationErrorKind.AdditionalProperties) and kind.unexpected:
        return f"{path}/{escaped(kind.unexpected[0])}"
    return path
