"""Reads the present topics and groups, and makes the changes of a plan, through the client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lakelog.cli.topic_files.planning import Action, Change, Kind, Present, PresentGroup
from lakelog.cli.topic_files.wanted import GROUP_TOPIC_SETTINGS, TOPIC_DEFAULTS, Settings, Wanted
from lakelog.client.worker.options import group_settings
from lakelog.model.membership import JoinRequest
from lakelog.model.progress import GroupDescription
from lakelog.model.topic_info import TopicInfo

if TYPE_CHECKING:
    from lakelog import Lakelog

_TOPIC_ARGUMENTS = {
    "retention.max_age": "max_age",
    "retention.max_count": "max_count",
    "retention.max_bytes": "max_bytes",
}
_GROUP_ARGUMENTS = {
    "dead_letter_retention.max_age": "dead_letter_max_age",
    "dead_letter_retention.max_count": "dead_letter_max_count",
}
_MEMBER = "lakelog-apply"
"""The member that creates a group: the first join creates it."""


def read_present(log: Lakelog, wanted: Wanted) -> Present:
    """Return the topics and groups of an installation. Only those of the file are read in detail."""
    groups: dict[str, PresentGroup] = {}
    for summary in log.groups():
        if summary.name in (wanted.groups or {}):
            groups[summary.name] = _present_group(log.group(summary.name).describe())
        else:
            groups[summary.name] = PresentGroup(kind=summary.kind, settings={})
    topics: dict[str, Settings] = {}
    for info in log.topics():
        has_schema = info.schema_version is not None and info.name in (wanted.topics or {})
        schema = log.topic(info.name).schema(info.schema_version).schema if has_schema else None
        topics[info.name] = _present_topic(info) | {"schema": schema}
    return Present(topics=topics, groups=groups)


def _present_topic(info: TopicInfo) -> dict[str, Any]:
    return {
        "compatibility": info.compatibility or TOPIC_DEFAULTS["compatibility"],
        "partitions": info.partitions,
        "retention.max_age": info.retention.max_age,
        "retention.max_count": info.retention.max_count,
        "retention.max_bytes": info.retention.max_bytes,
        "key_field": info.key_field,
        "idempotency_memory": info.idempotency_memory,
        "tags": tuple(info.tags),
        "metadata": dict(info.metadata),
        "columns": info.columns,
        "masks": info.masks,
    }


def _present_group(found: GroupDescription) -> PresentGroup:
    settings = found.settings
    return PresentGroup(
        kind=found.kind,
        settings={
            "order": settings.order,
            "filter": settings.filter,
            "retries": settings.retries,
            "dead_letter": settings.dead_letter,
            "dead_letter_retention.max_age": settings.dead_letter_retention.max_age,
            "dead_letter_retention.max_count": settings.dead_letter_retention.max_count,
            "assignor": settings.assignor,
            "window": settings.window,
        },
        topics={topic: own.stated_by_name() for topic, own in settings.topics.items()},
        reads=frozenset(each.topic for each in found.progress),
    )


def apply_change(log: Lakelog, change: Change) -> None:
    """Make one change. After an error, the next plan has what is left of it."""
    if change.kind is Kind.TOPIC:
        _apply_topic(log, change)
    elif change.action is Action.DELETE:
        log.group(change.name).delete()
    else:
        _apply_group(log, change)


def _apply_topic(log: Lakelog, change: Change) -> None:
    topic = log.topic(change.name)
    if change.action is Action.DELETE:
        topic.delete()
        return
    given = _arguments(change, _TOPIC_ARGUMENTS)
    if change.action is Action.CREATE:
        topic.create(**given)
        return
    schema = {name: given.pop(name) for name in ("schema", "compatibility") if name in given}
    if given:
        topic.alter(**given)
    if "schema" in schema and schema["schema"] is None:
        topic.remove_schema()
    elif schema:
        topic.set_schema(schema.get("schema"), compatibility=schema.get("compatibility"))


def check_schemas(log: Lakelog, plan: list[Change], wanted: Wanted) -> None:
    """Raise an error with the line of the file if a topic would refuse its new schema."""
    for change in plan:
        after: dict[str, Any] = {each.name: each.after for each in change.settings}
        if change.action is Action.CHANGE and after.get("schema") is not None and wanted.topics:
            check = log.topic(change.name).check_schema(after["schema"], compatibility=after.get("compatibility"))
            if not check.compatible:
                reasons = "; ".join(str(each) for each in check.changes)
                raise wanted.topics[change.name].place.error(
                    f"The schema of topic {change.name!r} is not compatible ({check.compatibility}) with version "
                    f"{check.version}: {reasons}."
                )


def _apply_group(log: Lakelog, change: Change) -> None:
    group = log.group(change.name)
    given = _arguments(change, _GROUP_ARGUMENTS)
    if "filter" in given:
        # In a call, None leaves the filter unchanged.
        given["filter"] = given["filter"] or ""
    begins = dict(change.begins)
    if change.action is Action.CREATE:
        first = next(iter(begins))
        start_from = begins.pop(first)
        stated = group_settings(
            **{name: given.pop(name) for name in [*given] if not name.startswith("dead_letter_max")},
            start_from=start_from,
        )
        join = JoinRequest(
            group=change.name,
            topics=(first,),
            member_id=_MEMBER,
            kind=change.group_kind,
            client="lakelog apply",
            start_from=stated.start_from,
            **stated.stated_by_name(),
        )
        group.join(join)
        group.leave(_MEMBER)
    if given:
        group.alter(**given)
    # The settings of a topic apply from its first message on.
    for topic, own in change.topics.items():
        group.alter(topic=topic, inherit=True, **{name: own[name] for name in GROUP_TOPIC_SETTINGS if name in own})
    for topic, start in begins.items():
        where: dict[str, Any] = {"offset": start} if isinstance(start, int) else {"to": start}
        log.topic(topic).seek(change.name, **where)


def _arguments(change: Change, names: Mapping[str, str]) -> dict[str, Any]:
    """Return the changed settings as arguments of the client, without those of single topics."""
    return {
        names.get(each.name, each.name): each.after for each in change.settings if not each.name.startswith("topics.")
    }
