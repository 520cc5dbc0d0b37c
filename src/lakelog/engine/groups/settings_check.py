"""Compares the settings that callers state with those of the group."""

from __future__ import annotations

from dataclasses import replace

from lakelog.errors import GroupKindDiffers, InvalidFilter
from lakelog.model.filter import parse
from lakelog.model.group import Group, GroupKind, GroupWish

_OF_DEAD_LETTERS = {"error", "deliveries", "failures"}


def agree(group: Group, wish: GroupWish) -> None:
    """Raise an error if the stated settings differ from those of the group."""
    if wish.kind is not None and wish.kind is not group.kind:
        raise other_kind(group, wish.kind)
    exact(wish).check(group)


def other_kind(group: Group, wanted: GroupKind) -> GroupKindDiffers:
    return GroupKindDiffers(
        f"Group '{group.name}' is a {group.kind} group, and this call needs a {wanted} group. The kind is fixed; "
        "use a group of another name.",
        group=group.name,
        kind=group.kind,
    )


def exact(wish: GroupWish) -> GroupWish:
    """Return the settings with a normalized filter, so that equal filters compare equal."""
    return wish if wish.filter is None else replace(wish, filter=exact_filter(wish.filter))


def exact_filter(text: str) -> str:
    found = parse(text)
    if unknown := sorted(found.fields & _OF_DEAD_LETTERS):
        raise InvalidFilter(
            f"A group's filter cannot use {', '.join(unknown)}: a message has none before its first delivery.",
            position=1,
        )
    return str(found)
