"""Compares a file with an installation: a plan of what to create, change and delete. It makes no calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from lakelog.cli.topic_files.wanted import (
    GROUP_DEFAULTS,
    TOPIC_DEFAULTS,
    Settings,
    Wanted,
    WantedGroup,
    WantedTopic,
)
from lakelog.client.worker.options import StartFrom
from lakelog.errors import InvalidRequest
from lakelog.model.columns import TopicColumns, widened
from lakelog.model.kinds import GroupKind


@dataclass(frozen=True, slots=True, kw_only=True)
class PresentGroup:
    """A group of the installation."""

    kind: GroupKind
    settings: Settings
    topics: Mapping[str, Settings] = field(default_factory=dict)
    """The settings of the group in single topics, without those that it inherits."""
    reads: frozenset[str] = frozenset()
    """The topics in which the group has a position."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """The topics and groups of an installation, by name. Groups that the file does not have need no details."""

    topics: Mapping[str, Settings]
    groups: Mapping[str, PresentGroup]


class Action(StrEnum):
    """The action on a topic or a group."""

    CREATE = "create"
    CHANGE = "change"
    DELETE = "delete"


class Kind(StrEnum):
    """The kinds of things that a file manages."""

    TOPIC = "topic"
    GROUP = "group"


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChange:
    """A setting before and after. A setting of a group in one topic is named `topics.NAME.filter`."""

    name: str
    before: object
    after: object


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of one topic or group."""

    action: Action
    kind: Kind
    name: str
    settings: tuple[SettingChange, ...] = ()
    group_kind: GroupKind = GroupKind.LEASE
    begins: Mapping[str, StartFrom] = field(default_factory=dict)
    """The topics that a group begins to read, and where."""
    topics: Mapping[str, Settings] = field(default_factory=dict)
    """The settings of a group in single topics that change: all that each topic then overrides."""


def make_plan(wanted: Wanted, present: Present, *, prune: bool = False) -> list[Change]:
    """Return the changes that make the installation as the file describes it, in the order in which to apply them.

    Args:
        wanted: The file.
        present: The installation.
        prune: Whether to delete the topics and groups that the file does not have. A section that the file does not
            have is not pruned.

    Raises:
        InvalidRequest: The installation cannot become what the file describes. The error names the line.
    """
    deleted = list(_pruned(wanted, present)) if prune else []
    topics = [_topic_change(name, topic, present) for name, topic in (wanted.topics or {}).items()]
    missing = {change.name for change in deleted if change.kind is Kind.TOPIC}
    known = ({*present.topics} - missing) | {*(wanted.topics or {})}
    groups = [_group_change(name, group, present, known) for name, group in (wanted.groups or {}).items()]
    # Groups are deleted before their topics, and created after them.
    return [*deleted, *(change for change in (*topics, *groups) if change is not None)]


def _pruned(wanted: Wanted, present: Present) -> Iterator[Change]:
    sections = ((Kind.GROUP, wanted.groups, present.groups), (Kind.TOPIC, wanted.topics, present.topics))
    for kind, section, found in sections:
        for name in sorted(found) if section is not None else ():
            if name not in section:  # type: ignore[operator]
                yield Change(action=Action.DELETE, kind=kind, name=name)


def _topic_change(name: str, wanted: WantedTopic, present: Present) -> Change | None:
    found = present.topics.get(name)
    if found is None:
        _check_compatibility(name, wanted, TOPIC_DEFAULTS)
        changed = _changes({"partitions": 1, **wanted.settings}, {**TOPIC_DEFAULTS, "partitions": None}, is_new=True)
        return Change(action=Action.CREATE, kind=Kind.TOPIC, name=name, settings=changed)
    if (fewer := wanted.settings.get("partitions", found["partitions"])) < found["partitions"]:
        raise wanted.place.error(
            f"Topic {name!r} has {found['partitions']} partitions, and the file has {fewer}. Partitions cannot be "
            f"removed. Write {found['partitions']}, or copy the messages into a new topic."
        )
    changed = _changes(wanted.settings, {**found, "columns": _columns(wanted, found["columns"])})
    _check_compatibility(name, wanted, found)
    return Change(action=Action.CHANGE, kind=Kind.TOPIC, name=name, settings=changed) if changed else None


def _columns(wanted: WantedTopic, present: TopicColumns | None) -> object:
    """Return what the file has if the topic has these columns already, and the columns of the topic otherwise."""
    schema = wanted.settings.get("columns")
    if schema is None and "columns" in wanted.settings and present is not None:
        raise wanted.place.error("The columns of a topic cannot be removed. Remove `columns` from the file.")
    if schema is None or wanted.place.checked(lambda: widened(present, schema)) != present:
        return present
    return schema


def _check_compatibility(name: str, wanted: WantedTopic, present: Settings) -> None:
    default = TOPIC_DEFAULTS["compatibility"]
    has_schema = wanted.settings.get("schema", present["schema"]) is not None
    if not has_schema and wanted.settings.get("compatibility", default) != default:
        raise wanted.place.error(f"Topic {name!r} has a `compatibility` and no schema. Add its `schema`.")


def _group_change(name: str, wanted: WantedGroup, present: Present, known: set[str]) -> Change | None:
    for topic, each in wanted.topics.items():
        if topic not in known:
            raise each.place.error(
                f"Group {name!r} reads topic {topic!r}, which does not exist. Add it to the `topics` of the file."
            )
    found = present.groups.get(name)
    if found is None:
        if not wanted.topics:
            raise wanted.place.error(f"Group {name!r} is new and reads no topic. Name at least one in its `topics`.")
        kind = wanted.kind or GroupKind.LEASE
        found = PresentGroup(kind=kind, settings=GROUP_DEFAULTS)
    elif wanted.kind is not None and wanted.kind is not found.kind:
        raise wanted.place.error(
            f"Group {name!r} is a {found.kind} group, and the file has {wanted.kind}. The kind of a group is fixed: "
            "use another name."
        )
    is_new = name not in present.groups
    settings = _changes(wanted.settings, found.settings, is_new=is_new)
    overridden = dict(_overridden(wanted, found))
    begins = {topic: each.start_from for topic, each in wanted.topics.items() if topic not in found.reads}
    inner = tuple(
        change
        for topic, after in overridden.items()
        for change in _inner_changes(topic, found.topics.get(topic, {}), after)
    )
    if not (is_new or settings or inner or begins):
        return None
    return Change(
        action=Action.CREATE if is_new else Action.CHANGE,
        kind=Kind.GROUP,
        name=name,
        settings=settings + inner,
        group_kind=found.kind,
        begins=begins,
        topics=overridden,
    )


def _changes(wanted: Settings, present: Settings, *, is_new: bool = False) -> tuple[SettingChange, ...]:
    """Return the settings that differ. A new topic or group states all that the file has, except defaults."""
    return tuple(
        SettingChange(name=name, before=None if is_new else present[name], after=after)
        for name, after in wanted.items()
        if after != present[name]
    )


def _overridden(wanted: WantedGroup, present: PresentGroup) -> Iterator[tuple[str, Settings]]:
    """Yield the topics whose own settings change, and all that they then override."""
    for topic, each in wanted.topics.items():
        before = present.topics.get(topic, {})
        after = {name: value for name, value in {**before, **each.settings}.items() if value is not None}
        if after != before:
            yield topic, after


def _inner_changes(topic: str, before: Settings, after: Settings) -> Iterator[SettingChange]:
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            yield SettingChange(name=f"topics.{topic}.{name}", before=before.get(name), after=after.get(name))


def check_prune(wanted: Wanted, present: Present) -> None:
    """Raise if pruning would delete everything because the file is empty."""
    if not wanted.topics and not wanted.groups and (present.topics or present.groups):
        raise InvalidRequest("The file has no topics and no groups, so --prune would delete all. Name what to keep.")
