"""Converts what callers send about groups and offsets to the engine's values, and back."""

from __future__ import annotations

from dataclasses import replace

from lakelog.model.group import (
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
