"""Parses input into messages: lines of text, JSON, whole messages, or raw bytes. It publishes nothing.

A line that cannot be parsed becomes a `BadLine` with its number and the reason; the command decides what to do with it.
"""

from __future__ import annotations

import binascii
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import BinaryIO

import msgspec

from lakelog.cli.formats import Format
from lakelog.model.limits import MAX_MESSAGE_BYTES

JSON = "application/json"
_ENDINGS = {
    ".jsonl": Format.JSONL,
    ".ndjson": Format.JSONL,
    ".csv": Format.CSV,
    ".parquet": Format.PARQUET,
}
WHOLE = (Format.RAW, Format.JSON)
"""Formats in which the whole input is one message."""
ROWS = (Format.CSV, Format.PARQUET)
"""Formats with columns. The module `rows` reads them."""

MAX_LINE_BYTES = 2 * MAX_MESSAGE_BYTES
"""The longest line that is read: a message in base64, with its headers, is longer than its value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """One message to publish."""

    number: int
    value: object
    """Bytes, text, encoded JSON, an object of JSON, or None."""
    size: float
    """The bytes of the input that it takes up."""
    key: str | bytes | int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    content_type: str | None = None
    correlation_id: str | None = None
    doubt: str | None = None
    """The reason why a text that starts like JSON is not JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadLine:
    """A line that is not a message."""

    number: int
    reason: str


class _MessageLine(msgspec.Struct):
    """A line as `lakelog tail --json` prints it, without its partition and offset."""

    value: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    value_base64: str | None = None
    key: str | None = None
    key_base64: str | None = None
    headers: dict[str, str] | None = None
    content_type: str | None = None
    correlation_id: str | None = None


_message_line = msgspec.json.Decoder(_MessageLine)


def read_value(text: str, wanted: Format, key_field: str | None) -> Input:
    """Return the message of a --value; raise ValueError with the reason if the text is not a message."""
    # Use the bytes that the shell passed: Python has replaced those that are not UTF-8.
    data = os.fsencode(text)
    if wanted in ROWS:
        raise ValueError(f"the format {wanted} applies to a file or stdin, not to one value")
    if wanted is Format.RAW:
        return Input(number=1, value=data, size=len(data))
    doubt = None
    if wanted is Format.AUTO:
        wanted, doubt = _detect(data)
    return replace(_parse(1, data, wanted, key_field), doubt=doubt)


def format_of(name: str, wanted: Format) -> Format:
    """Return the format of a file: the wanted one, or that of the file's name, or auto if the name does not tell."""
    if wanted is not Format.AUTO:
        return wanted
    return next((found for ending, found in _ENDINGS.items() if name.lower().endswith(ending)), Format.AUTO)


def read_messages(stream: BinaryIO, name: str, wanted: Format, key_field: str | None) -> Iterator[Input | BadLine]:
    """Yield the messages of the input in order, without empty lines. The input has lines, not rows."""
    wanted = format_of(name, wanted)
    if wanted in WHOLE:
        yield _whole(stream, wanted, key_field)
        return
    for number, line in enumerate(bounded_lines(stream), start=1):
        doubt = None
        if not line.strip():
            continue
        if len(line) > MAX_LINE_BYTES:
            yield BadLine(number=number, reason=f"it is longer than a message may be ({MAX_MESSAGE_BYTES} bytes)")
            continue
        if wanted is Format.AUTO:
            wanted, doubt = _detect(line)
        try:
            message = _parse(number, line, wanted, key_field)
        except ValueError as error:
            yield BadLine(number=number, reason=str(error))
        else:
            yield message if doubt is None else replace(message, doubt=doubt)


def _detect(first: bytes) -> tuple[Format, str | None]:
    """Return the format of the input, and why the first line is not JSON if it starts like JSON.

    The format is JSON lines if the first line is a JSON object or array; otherwise, text lines.
    """
    if first.lstrip()[:1] not in (b"{", b"["):
        return Format.LINES, None
    try:
        decoded(first)
    except ValueError as error:
        return Format.LINES, str(error)
    return Format.JSONL, None


def _parse(number: int, line: bytes, wanted: Format, key_field: str | None) -> Input:
    if wanted is Format.LINES:
        return Input(number=number, value=_text(line.rstrip(b"\r\n")), size=len(line))
    line = line.strip()
    # These bytes are stored, and msgspec does not check that all of them are UTF-8.
    _text(line)
    if wanted is Format.MESSAGES:
        return _from_message(number, line, key_field)
    return _from_json(Input(number=number, value=None, size=len(line)), line, key_field)


def _from_json(message: Input, line: bytes, key_field: str | None) -> Input:
    """Return the message with its value: text as text, null as no value, other JSON as bytes, so numbers stay exact."""
    try:
        value = decoded(line)
    except ValueError as error:
        raise ValueError(f"it is not JSON: {error}") from None
    key = key_of(value, key_field) if message.key is None else message.key
    if value is None or isinstance(value, str):
        return replace(message, value=value, key=key)
    return replace(message, value=msgspec.Raw(line), key=key)


def _from_message(number: int, line: bytes, key_field: str | None) -> Input:
    try:
        found = _message_line.decode(line)
        key = binascii.a2b_base64(found.key_base64, strict_mode=True) if found.key_base64 else found.key
        message = Input(
            number=number,
            value=None,
            size=len(line),
            key=key,
            headers=found.headers or {},
            content_type=found.content_type,
            correlation_id=found.correlation_id,
        )
        if found.value_base64 is not None:
            return replace(message, value=binascii.a2b_base64(found.value_base64, strict_mode=True))
    except (msgspec.MsgspecError, binascii.Error, RecursionError) as error:
        raise ValueError(f"it is not a message: {error}") from None
    if found.value is msgspec.UNSET:
        raise ValueError("it is not a message: it has neither `value` nor `value_base64`")
    if found.content_type == JSON:
        return replace(message, value=msgspec.Raw(bytes(found.value)), content_type=None)
    return _from_json(message, bytes(found.value), key_field)


def decoded(line: bytes) -> object:
    """Return the value of JSON; raise ValueError with the reason if the bytes are not JSON."""
    try:
        return msgspec.json.decode(line)
    except msgspec.MsgspecError as error:
        raise ValueError(str(error).removeprefix("JSON is malformed: ")) from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def key_of(value: object, key_field: str | None) -> str | int | None:
    """Return the key in a field of a value; raise ValueError if the field holds no key. Without a field, None."""
    if key_field is None:
        return None
    key = value.get(key_field) if isinstance(value, dict) else None
    if isinstance(key, bool) or not isinstance(key, str | int):
        raise ValueError(
            f"its field {key_field!r}, which holds the key, is missing or is neither text nor a whole number"
        )
    return key


def _text(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8: {error.reason} at byte {error.start}") from None


def _whole(stream: BinaryIO, wanted: Format, key_field: str | None) -> Input | BadLine:
    data = stream.read(MAX_MESSAGE_BYTES + 1)
    if len(data) > MAX_MESSAGE_BYTES:
        return BadLine(number=1, reason=f"it exceeds {MAX_MESSAGE_BYTES} bytes, the largest size of a message")
    if wanted is Format.RAW:
        return Input(number=1, value=data, size=len(data))
    try:
        return _parse(1, data, wanted, key_field)
    except ValueError as error:
        return BadLine(number=1, reason=str(error))


def bounded_lines(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of the stream; a longer line is cut at the limit, so that it cannot fill the memory."""
    while line := stream.readline(MAX_LINE_BYTES + 1):
        yield line
        while line and not line.endswith(b"\n"):
            line = stream.readline(MAX_LINE_BYTES + 1)
