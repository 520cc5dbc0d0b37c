"""Converts what callers send about groups and offsets to the engine's values, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lakelog.errors import InvalidRequest
from lakelog.model.group import (
    MAX_REASON_BYTES,
    Assignor,
    GroupKind,
    GroupWish,
    NoStart,
    Order,
    Start,
)
from lakelog.model.position import AtOffset, AtTime, Earliest, Latest
from lakelog.server.query import parse_time
from lakelog.wire.consume_shapes import SettingsShape, WishShape

_STARTS: dict[str, Start] = {"earliest": Earliest(), "latest": Latest(), "none": NoStart()}
_NOTHING = GroupWish()


def wish_of(shape: WishShape, kind: str | None = None) -> GroupWish:
    """Return the group settings of a consume or join."""
    stated = settings_wish(shape, kind)
    start = start_of(shape.start_from)
    return stated if start is None else replace(stated, start=start)


def settings_wish(shape: SettingsShape, kind: str | None = None) -> GroupWish:
    """Return the group settings without a start position."""
    said = (shape.order, shape.filter, shape.retries, shape.dead_letter, shape.assignor, shape.window, kind)
    if said == (None,) * len(said):
        return _NOTHING
    return GroupWish(
        kind=None if kind is None else GroupKind(kind),
        order=None if shape.order is None else Order(shape.order),
        filter=shape.filter,
        retries=shape.retries,
        dead_letter=shape.dead_letter,
        assignor=None if shape.assignor is None else Assignor(shape.assignor),
        window=shape.window,
    )


def start_of(given: str | int | None) -> Start | None:
    """Return the start position: `earliest`, `latest`, `none`, an offset or a time."""
    if given is None:
        return None
    if isinstance(given, int):
        return AtOffset(given)
    found = _STARTS.get(given)
    if found is not None:
        return found
    if given.isascii() and given.isdigit() and len(given) < 19:
        return AtOffset(int(given))
    return AtTime(parse_time("start_from", given))


def ranges_of(offset: int | None, offsets: Sequence[int | list[int]] | None) -> list[tuple[int, int]]:
    """Return the offsets that a caller names as ascending ranges, without their ends."""
    if offsets is None:
        return [] if offset is None else [(offset, offset + 1)]
    if offset is not None:
        raise InvalidRequest("Give `offset` or `offsets`, not both.")
    if len(offsets) == 1 and isinstance(first := offsets[0], int):
        return [(first, first + 1)]
    return _merged(sorted((each, each + 1) if isinstance(each, int) else (each[0], each[1] + 1) for each in offsets))


def reason_of(text: str) -> str:
    """Return as much of a reason as is stored: a nack must not fail because of its reason."""
    if len(text) <= MAX_REASON_BYTES and text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "").encode()[:MAX_REASON_BYTES].decode(errors="ignore")


def _merged(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for first, end in ranges:
        if end <= first:
            raise InvalidRequest("A pair of offsets is the first and the last, the smaller one first.")
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((first, end))
    return merged
