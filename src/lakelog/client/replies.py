"""Reading a server's JSON answers into their shapes."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from lakelog.errors import OutcomeUnknown

Shape = TypeVar("Shape")


def read_reply(body: bytes, kind: type[Shape]) -> Shape:
    """An answer that cannot be read says nothing about what became of the call."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as exc:
        raise OutcomeUnknown(f"The answer cannot be read: {exc}. Is the server of another version?") from exc
