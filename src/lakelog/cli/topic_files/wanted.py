"""The topics and groups that a file describes. Settings have the names that they have in the file.

A setting that the file does not mention is not managed: it does not change, or has its default in what is created.
`null` means the default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from lakelog.cli.topic_files.fields import Field, read_yaml
from lakelog.cli.units import parse_time
from lakelog.client.schemas import schema_of
from lakelog.client.worker.options import StartFrom, group_settings
from lakelog.errors import InvalidRequest
from lakelog.model.columns import widened
from lakelog.model.dead_letter_retention import DeadLetterRetentionChange
from lakelog.model.filter import parse
from lakelog.model.group import GroupSettings
from lakelog.model.kinds import Assignor, Compatibility, GroupKind, Order
from lakelog.model.masks import check_masks
from lakelog.model.names import check_name
from lakelog.model.retries import Exponential, Fixed, RetryPolicy
from lakelog.model.schema import schema_text
from lakelog.model.schema_nodes import JsonSchema
from lakelog.model.topic import IDEMPOTENCY_MEMORY, Retention, TopicSettings, check_partitions

Settings = Mapping[str, Any]
"""Settings by their name in the file, such as `retention.max_age`."""

TOPIC_DEFAULTS: Settings = {
    "partitions": 1,
    "retention.max_age": None,
    "retention.max_count": None,
    "retention.max_bytes": None,
    "key_field": None,
    "idempotency_memory": IDEMPOTENCY_MEMORY,
    "tags": (),
    "metadata": {},
    "schema": None,
    "compatibility": Compatibility.BACKWARD,
    "columns": None,
    "masks": (),
}
GROUP_DEFAULTS: Settings = {
    "order": Order.KEY,
    "filter": None,
    "retries": RetryPolicy(),
    "dead_letter": True,
    "dead_letter_retention.max_age": None,
    "dead_letter_retention.max_count": None,
    "assignor": Assignor.COOPERATIVE,
    "window": GroupSettings().window,
}
GROUP_TOPIC_SETTINGS = ("filter", "retries", "dead_letter")
"""The settings that a group may have for each topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedTopic:
    """A topic of the file."""

    place: Field
    settings: Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedGroupTopic:
    """A topic that a group reads. A setting that is None is the group's."""

    place: Field
    start_from: StartFrom = "latest"
    settings: Settings = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedGroup:
    """A group of the file."""

    place: Field
    kind: GroupKind | None
    settings: Settings
    topics: Mapping[str, WantedGroupTopic]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A file. A section that it does not have is None: nothing of it is managed."""

    topics: Mapping[str, WantedTopic] | None = None
    groups: Mapping[str, WantedGroup] | None = None


def read_wanted(path: Path) -> Wanted:
    """Return what a file describes; raise `InvalidRequest` with the line if it is not valid."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InvalidRequest(f"{path} cannot be read: {reason}.") from error
    return parse_wanted(text, str(path))


def parse_wanted(text: str, file: str) -> Wanted:
    root = read_yaml(text, file)
    sections = {} if root is None else dict(root.known_fields(("topics", "groups")))
    topics, groups = sections.get("topics"), sections.get("groups")
    return Wanted(
        topics=None if topics is None else {name: _topic(each) for name, each in _named(topics, "topic")},
        groups=None if groups is None else {name: _group(each) for name, each in _named(groups, "group")},
    )


def _named(section: Field, kind: str) -> list[tuple[str, Field]]:
    found = section.fields()
    for name, place in found.items():
        place.checked(lambda name=name: check_name(kind, name))  # type: ignore[misc]
    return list(found.items())


Reader = Callable[[Field], Any]
Readers = Mapping[str, Reader | Mapping[str, Reader]]
"""How the fields of a mapping are read; a section has the readers of its own fields."""

_RETENTION: Mapping[str, Reader] = {"max_age": Field.duration, "max_count": Field.number, "max_bytes": Field.size}
_DEAD_RETENTION: Mapping[str, Reader] = {"max_age": Field.duration, "max_count": Field.number}


def _topic(place: Field) -> WantedTopic:
    readers: Readers = {
        "partitions": Field.number,
        "retention": _RETENTION,
        "key_field": Field.text,
        "idempotency_memory": Field.duration,
        "tags": Field.texts,
        "metadata": lambda field: {name: text.text() for name, text in field.fields().items()},
        "schema": _schema,
        "compatibility": lambda field: field.choice(Compatibility),
        "columns": _columns,
        "masks": _masks,
    }
    settings = _with_defaults(_read(place, readers), TOPIC_DEFAULTS)
    place.checked(lambda: _check_topic({**TOPIC_DEFAULTS, **settings}))
    return WantedTopic(place=place, settings=settings)


def _schema(field: Field) -> JsonSchema:
    """Return the schema of the field: written there, or in a JSON file whose path is relative to this file."""
    found = field.value()
    given = Path(field.file).parent / found if isinstance(found, str) else found
    return field.checked(lambda: msgspec.json.decode(schema_text(schema_of(given, None))))  # type: ignore[no-any-return]


def _columns(field: Field) -> JsonSchema:
    schema = _schema(field)
    field.checked(lambda: widened(None, schema))
    return schema


def _masks(field: Field) -> tuple[str, ...]:
    masks = field.texts()
    return field.checked(lambda: check_masks(masks))


def _check_topic(settings: Settings) -> None:
    check_partitions(settings["partitions"])
    retention = Retention(
        max_age=settings["retention.max_age"],
        max_count=settings["retention.max_count"],
        max_bytes=settings["retention.max_bytes"],
    )
    TopicSettings(
        retention=retention,
        key_field=settings["key_field"],
        idempotency_memory=settings["idempotency_memory"],
        tags=settings["tags"],
        metadata=settings["metadata"],
    )


def _group(place: Field) -> WantedGroup:
    readers: Readers = {
        "kind": lambda field: field.choice(GroupKind),
        "topics": _group_topics,
        "order": lambda field: field.choice(Order),
        **_DELIVERY,
        "filter": lambda field: _filter(field) or None,
        "dead_letter_retention": _DEAD_RETENTION,
        "assignor": lambda field: field.choice(Assignor),
        "window": Field.number,
    }
    found = _read(place, readers)
    topics = found.pop("topics", {}) or {}
    kind = found.pop("kind", None)
    settings = _with_defaults(found, GROUP_DEFAULTS)
    place.checked(lambda: _check_group({**GROUP_DEFAULTS, **settings}))
    return WantedGroup(place=place, kind=kind, settings=settings, topics=topics)


def _check_group(settings: Settings) -> None:
    group_settings(window=settings["window"])
    DeadLetterRetentionChange.of(settings["dead_letter_retention.max_age"], settings["dead_letter_retention.max_count"])


def _group_topics(place: Field) -> dict[str, WantedGroupTopic]:
    if not place.is_mapping and not place.is_null:
        return {name: WantedGroupTopic(place=place) for name in place.texts()}
    return {name: _group_topic(each) for name, each in _named(place, "topic")}


def _group_topic(place: Field) -> WantedGroupTopic:
    found = _read(place, {"start_from": _start_from, **_DELIVERY})
    start_from = found.pop("start_from", None)
    return WantedGroupTopic(place=place, start_from="latest" if start_from is None else start_from, settings=found)


def _start_from(field: Field) -> StartFrom:
    text = field.raw
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    if text.isascii() and text.isdigit():
        return int(text)
    return field.checked(lambda: parse_time(text))


def _filter(field: Field) -> str:
    """Return the filter in its normal form, so that equal filters compare equal; an empty text for none."""
    text = field.text()
    return field.checked(lambda: str(parse(text))) if text else ""


def _retries(field: Field) -> RetryPolicy:
    if not field.is_mapping:
        number = field.number()
        return field.checked(lambda: Exponential(max=number))
    readers: Readers = {
        "max": Field.number,
        "strategy": Field.text,
        "delay": Field.duration,
        "max_delay": Field.duration,
        "jitter": Field.decimal,
    }
    given = {name: value for name, value in _read(field, readers).items() if value is not None}
    strategy = given.pop("strategy", "exponential")
    names = {"max": "max", "delay": "seconds" if strategy == "fixed" else "base_seconds", "max_delay": "max_seconds"}
    if strategy not in ("exponential", "fixed"):
        raise field.error(f"`{field.path}.strategy` must be exponential or fixed, not {strategy!r}.")
    if strategy == "fixed" and given.keys() & {"max_delay", "jitter"}:
        raise field.error(f"`{field.path}`: the strategy fixed has no `max_delay` and no `jitter`.")
    seconds = {
        names.get(name, name): value.total_seconds() if name.endswith("delay") else value
        for name, value in given.items()
    }
    return field.checked(lambda: (Fixed if strategy == "fixed" else Exponential)(**seconds))


_DELIVERY: Mapping[str, Reader] = {"filter": _filter, "retries": _retries, "dead_letter": Field.flag}


def _read(place: Field, readers: Readers) -> dict[str, Any]:
    """Return the fields of a mapping, None for null. The fields of a section in it have its name before their own."""
    found: dict[str, Any] = {}
    for name, each in place.known_fields(tuple(readers)):
        reader = readers[name]
        if isinstance(reader, Mapping):
            section = dict.fromkeys(reader) if each.is_null else _read(each, reader)
            found |= {f"{name}.{inner}": value for inner, value in section.items()}
        else:
            found[name] = None if each.is_null else reader(each)
    return found


def _with_defaults(found: Settings, defaults: Settings) -> dict[str, Any]:
    """Return the settings with the defaults of those that are null."""
    return {name: defaults[name] if value is None else value for name, value in found.items()}
