"""Decodes the JSON responses of a server."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from lakelog.errors import OutcomeUnknown

Shape = TypeVar("Shape")


def read_reply(body: bytes, kind: type[Shape]) -> Shape:
    """Return the decoded body. The outcome of a call whose response cannot be read is unknown."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as exc:
        raise OutcomeUnknown(f"The response cannot be read: {exc}. The server may run another version.") from exc
