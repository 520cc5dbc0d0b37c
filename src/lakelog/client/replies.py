"""Reading a server's JSON answers into their shapes, and shapes into values."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from lakelog.errors import InvalidRequest, OutcomeUnknown

Shape = TypeVar("Shape")


def read_reply(body: bytes, kind: type[Shape]) -> Shape:
    """An answer that cannot be read says nothing about what became of the call."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as exc:
        raise OutcomeUnknown(f"The answer cannot be read: {exc}. Is the server of another version?") from exc


def same_fields(value: object, kind: type[Shape]) -> Shape:
    """Between a value of the model and its shape, where both have the same fields."""
    try:
        return msgspec.convert(value, kind, from_attributes=True)
    except msgspec.ValidationError as exc:
        raise InvalidRequest(f"{type(value).__name__}: {exc}.") from exc
