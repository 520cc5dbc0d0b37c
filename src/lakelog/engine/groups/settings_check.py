"""Compares the settings that callers request with the settings of the group."""

from __future__ import annotations

from typing import Any

from lakelog.errors import GroupKindDiffers, GroupSettingsDiffer, InvalidFilter
from lakelog.model.filter import parse
from lakelog.model.group import Group, GroupKind, RequestedSettings

_OF_DEAD_LETTERS = {"error", "deliveries", "failures"}


def agree(group: Group, requested: RequestedSettings, kind: GroupKind | None) -> None:
    """Raise an error if the group is of another kind, or if a stated setting differs from the group's."""
    if kind is not None and kind is not group.kind:
        raise other_kind(group, kind)
    for name, wanted in exact(requested).items():
        present = getattr(group.settings, name)
        if wanted != present:
            raise GroupSettingsDiffer(
                f"Group '{group.name}' has {name} {present!s}, and this caller wants {wanted!s}. "
                f"Change the caller, or the group with `lakelog groups alter {group.name}`.",
                group=group.name,
                setting=name,
            )


def other_kind(group: Group, wanted: GroupKind) -> GroupKindDiffers:
    return GroupKindDiffers(
        f"Group '{group.name}' is a {group.kind} group, and this call needs a {wanted} group. The kind is fixed; "
        "use a group of another name.",
        group=group.name,
        kind=group.kind,
    )


def exact(requested: RequestedSettings) -> dict[str, Any]:
    """Return the stated settings by name, with a normalized filter, so that equal filters compare equal."""
    stated = requested.stated_by_name()
    return stated if requested.filter is None else {**stated, "filter": exact_filter(requested.filter)}


def exact_filter(text: str) -> str:
    found = parse(text)
    if unknown := sorted(found.fields & _OF_DEAD_LETTERS):
        raise InvalidFilter(
            f"A group's filter cannot use {', '.join(unknown)}: a message has none before its first delivery.",
            position=1,
        )
    return str(found)
