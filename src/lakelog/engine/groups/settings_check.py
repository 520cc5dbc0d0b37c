"""Compares the settings that callers state with the settings of the group, and of the group in single topics."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from lakelog.errors import GroupKindDiffers, GroupSettingsDiffer, InvalidFilter, InvalidRequest
from lakelog.model.dead_letter_retention import DeadLetterRetentionChange
from lakelog.model.filter import parse
from lakelog.model.group import (
    AlterGroupRequest,
    Group,
    GroupKind,
    GroupSettings,
    GroupTopicSettings,
    RequestedSettings,
)

_OF_DEAD_LETTERS = {"error", "deliveries", "failures"}
_OF_TOPICS = GroupTopicSettings.__struct_fields__
"""The settings that a group may have for each topic."""


def agree(group: Group, requested: RequestedSettings, kind: GroupKind | None) -> None:
    """Raise an error if the group is of another kind, or if a stated setting of the whole group differs from its."""
    if kind is not None and kind is not group.kind:
        raise other_kind(group, kind)
    for name, wanted in exact(requested).items():
        present = getattr(group.settings, name)
        if wanted != present and not (name in _OF_TOPICS and requested.stated_topics):
            raise GroupSettingsDiffer(
                f"Group '{group.name}' has {name} {present!s}, and this caller wants {wanted!s}. "
                f"Change the caller, or the group with `lakelog groups alter {group.name}`.",
                group=group.name,
                setting=name,
            )


def agree_in_topics(group: Group, requested: RequestedSettings) -> None:
    """Raise an error if a stated setting of a topic differs from the one that applies there."""
    stated = exact_of_topic(requested)
    for topic in requested.stated_topics if stated else ():
        applied = group.settings.in_topic(topic)
        for name, wanted in stated.items():
            present = getattr(applied, name)
            if wanted != present:
                raise _differs_in_topic(group, topic, name, f"{present!s}, and this caller wants {wanted!s}")


def _differs_in_topic(group: Group, topic: str, name: str, both: str) -> GroupSettingsDiffer:
    is_own = name in group.settings.topics.get(topic, GroupTopicSettings()).stated_by_name()
    source = "set for this topic" if is_own else "the setting of the group"
    return GroupSettingsDiffer(
        f"Group '{group.name}' has in topic '{topic}' {name} {both}. The first is {source}. Change the caller, or the "
        f"group in this topic with `lakelog groups alter {group.name} --topic {topic}`.",
        group=group.name,
        topic=topic,
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
    """Return the stated settings by name, with a normalized filter, so that equal filters compare equal.

    An empty filter states that the group has none.
    """
    stated = requested.stated_by_name()
    if requested.filter is not None:
        stated["filter"] = exact_filter(requested.filter) if requested.filter else None
    return stated


def exact_of_topic(requested: RequestedSettings) -> dict[str, Any]:
    """Return the stated settings that a group may have for each topic."""
    return {name: wanted for name, wanted in exact(requested).items() if name in _OF_TOPICS}


def first_settings(requested: RequestedSettings, *, has_topics: bool) -> GroupSettings:
    """Return the settings of a group that the request creates.

    Args:
        requested: The settings that the request states.
        has_topics: Whether groups have settings for single topics. Then the topics of the request have an entry, so
            that another caller that states other settings for them is refused.
    """
    stated_topics = requested.stated_topics if has_topics and exact_of_topic(requested) else ()
    return GroupSettings(**exact(requested), topics=dict.fromkeys(stated_topics, GroupTopicSettings()))


def with_stated(settings: GroupSettings, topic: str, requested: RequestedSettings) -> GroupSettings:
    """Return the settings with those that the request states for a topic, unless the topic has an entry."""
    if topic in settings.topics:
        return settings
    differing = {name: own for name, own in exact_of_topic(requested).items() if own != getattr(settings, name)}
    return _with_topic(settings, topic, differing)


def altered(settings: GroupSettings, request: AlterGroupRequest) -> GroupSettings:
    """Return the settings with the changes that the request states, of the group or of one topic."""
    changes = exact(request)
    if request.topic is None:
        if request.inherit:
            raise InvalidRequest("`inherit` removes the settings of one topic: name it with `topic`.")
        retention = request.dead_letter_retention.changed(settings.dead_letter_retention)
        return replace(settings, dead_letter_retention=retention, **changes)
    if request.dead_letter_retention != DeadLetterRetentionChange():
        changes["dead_letter_retention"] = request.dead_letter_retention
    if of_group := [name for name in changes if name not in _OF_TOPICS]:
        raise InvalidRequest(
            f"`{of_group[0]}` is a setting of the whole group. A topic has its own {', '.join(_OF_TOPICS[:-1])} and "
            f"{_OF_TOPICS[-1]}. Omit `topic`, or the setting."
        )
    own = GroupTopicSettings() if request.inherit else settings.topics.get(request.topic, GroupTopicSettings())
    return _with_topic(settings, request.topic, {**own.stated_by_name(), **changes})


def _with_topic(settings: GroupSettings, topic: str, own: dict[str, Any]) -> GroupSettings:
    """Return the settings with those of a topic. A filter of None is an empty text there, because None inherits."""
    if "filter" in own:
        own = {**own, "filter": own["filter"] or ""}
    return replace(settings, topics={**settings.topics, topic: GroupTopicSettings(**own)})


def exact_filter(text: str) -> str:
    found = parse(text)
    if unknown := sorted(found.fields & _OF_DEAD_LETTERS):
        raise InvalidFilter(
            f"A group's filter cannot use {', '.join(unknown)}: a message has none before its first delivery.",
            position=1,
        )
    return str(found)
