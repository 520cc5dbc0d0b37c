"""`lakelog topics`: create, list, describe, alter, delete and purge, and delayed messages, through a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakelog.cli import topic_schemas
from lakelog.cli.output import YesOption, confirm, print_fields, print_json, print_line, print_result, print_table
from lakelog.cli.target import JsonOption, TokenOption, UrlOption, complete_topic, open_log
from lakelog.cli.units import parse_duration, parse_pairs, parse_size
from lakelog.model.display import show_count, show_duration, show_since, show_size, show_time
from lakelog.model.kinds import Compatibility

if TYPE_CHECKING:
    from datetime import timedelta

    from lakelog.model.scheduled import ScheduledMessage
    from lakelog.model.topic_info import PartitionInfo, TopicInfo

app = typer.Typer(no_args_is_help=True, help="Create, list, describe, alter, delete and purge topics.")
app.add_typer(topic_schemas.app, name="schema")

NewArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")]
NameArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.", autocompletion=complete_topic)]
AgeOption = Annotated[str | None, typer.Option(metavar="DURATION", help="Keep messages this long, such as 7d or 12h.")]
CountOption = Annotated[int | None, typer.Option(min=1, help="Keep at most N messages per partition.")]
BytesOption = Annotated[
    str | None, typer.Option(metavar="SIZE", help="Keep at most this much per partition, such as 10GiB.")
]
KeyFieldOption = Annotated[str | None, typer.Option(help="The field of JSON values that holds the key.")]
TagOption = Annotated[list[str] | None, typer.Option("--tag", help="A tag. May be repeated.")]
MetadataOption = Annotated[
    list[str] | None, typer.Option("--metadata", metavar="NAME=TEXT", help="Any text about the topic. May be repeated.")
]
ColumnsOption = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="A file with a JSON Schema of the fields that are typed columns; - reads stdin."),
]
MaskOption = Annotated[
    list[str] | None,
    typer.Option(
        "--mask", metavar="FIELD", help="A field that the console shows masked, such as value.card. May be repeated."
    ),
]


@app.command()
def create(
    name: NewArgument,
    partitions: Annotated[
        int, typer.Option(min=1, help="Number of partitions. You can add more later, but not remove any.")
    ] = 1,
    max_age: AgeOption = None,
    max_count: CountOption = None,
    max_bytes: BytesOption = None,
    key_field: KeyFieldOption = None,
    tag: TagOption = None,
    metadata: MetadataOption = None,
    schema: Annotated[
        str | None, typer.Option(metavar="FILE", help="A file with the JSON Schema that values must match.")
    ] = None,
    compatibility: Annotated[
        Compatibility | None, typer.Option(help="The rule for changes of the schema. Default: backward.")
    ] = None,
    columns: ColumnsOption = None,
    mask: MaskOption = None,
    if_missing: Annotated[bool, typer.Option("--if-missing", help="Succeed if the topic exists already.")] = False,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """Create a topic."""
    age, size, pairs = _age(max_age), _size(max_bytes), parse_pairs(metadata, "--metadata")
    with open_log(url, token) as log:
        info = log.topic(name).create(
            partitions=partitions,
            max_age=age,
            max_count=max_count,
            max_bytes=size,
            key_field=key_field,
            tags=tuple(tag or ()),
            metadata=pairs,
            schema=None if schema is None else topic_schemas.read_schema(schema),
            compatibility=compatibility,
            columns=None if columns is None else topic_schemas.read_schema(columns),
            masks=tuple(mask or ()),
            if_missing=if_missing,
        )
    # The response does not say whether the topic is new.
    verb = "" if if_missing else "created "
    print_result(json, _shape(info), f"{verb}topic {info.name} with {show_count(info.partitions, 'partition')}")


@app.command("list")
def list_topics(url: UrlOption = None, token: TokenOption = None, json: JsonOption = False) -> None:
    """List all topics."""
    with open_log(url, token) as log:
        topics = list(log.topics())
    if json:
        print_json({"topics": [_shape(info) for info in topics]})
        return
    print_table(
        ["name", "partitions", "retention", "tags", "age"],
        [
            (info.name, info.partitions, _kept(info), ", ".join(info.tags), show_since(info.created_at))
            for info in topics
        ],
        empty="No topics yet. Create one with `lakelog topics create NAME`.",
    )


@app.command()
def describe(name: NameArgument, url: UrlOption = None, token: TokenOption = None, json: JsonOption = False) -> None:
    """Show a topic's settings and partitions."""
    with open_log(url, token) as log:
        info = log.topic(name).describe()
    if json:
        print_json(_shape(info))
        return
    _print_settings(info)
    print_line("")
    _print_partitions(info.partition_list)


@app.command()
def alter(
    name: NameArgument,
    partitions: Annotated[int | None, typer.Option(min=1, help="Raise the number of partitions to N.")] = None,
    max_age: AgeOption = None,
    max_count: CountOption = None,
    max_bytes: BytesOption = None,
    keep_all: Annotated[
        bool, typer.Option("--keep-all", help="Remove the retention limits that are not given.")
    ] = False,
    key_field: KeyFieldOption = None,
    tag: TagOption = None,
    metadata: MetadataOption = None,
    columns: ColumnsOption = None,
    columns_from_schema: Annotated[
        bool, typer.Option("--columns-from-schema", help="Take the typed columns from the schema of the topic.")
    ] = False,
    mask: MaskOption = None,
    no_masks: Annotated[bool, typer.Option("--no-masks", help="Remove all masks.")] = False,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """Change a topic's settings, or add partitions.

    Settings that are not given do not change.
    """
    limits = {"max_age": _age(max_age), "max_count": max_count, "max_bytes": _size(max_bytes)}
    changes = {
        "partitions": partitions,
        **limits,
        "key_field": key_field,
        "tags": tuple(tag) if tag else None,
        "metadata": parse_pairs(metadata, "--metadata") or None,
        "columns": None if columns is None else topic_schemas.read_schema(columns),
        "masks": tuple(mask or ()) if mask or no_masks else None,
    }
    given: dict[str, Any] = {option: change for option, change in changes.items() if change is not None}
    if keep_all:
        given |= {limit: None for limit, text in limits.items() if text is None}
    if columns is not None and columns_from_schema:
        raise typer.BadParameter("Give --columns or --columns-from-schema, not both.")
    if mask and no_masks:
        raise typer.BadParameter("Give --mask or --no-masks, not both.")
    if not given and not columns_from_schema:
        raise typer.BadParameter("Give a setting to change, such as --max-age; `--help` lists all.")
    with open_log(url, token) as log:
        topic = log.topic(name)
        if columns_from_schema:
            given["columns"] = topic.schema().schema
        info = topic.alter(**given)
    if json:
        print_json(_shape(info))
    else:
        _print_settings(info)


@app.command()
def delete(
    name: NameArgument,
    yes: YesOption = False,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """Delete a topic and all of its messages."""
    with open_log(url, token) as log:
        topic = log.topic(name)
        if not yes:
            confirm(f"Delete topic {name} with {_count(topic.describe())}? This cannot be undone.")
        topic.delete()
    print_result(json, {"deleted": name}, f"deleted topic {name}")


@app.command()
def purge(
    name: NameArgument,
    yes: YesOption = False,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """Remove all messages of a topic.

    The topic stays, and its offsets continue.
    """
    with open_log(url, token) as log:
        topic = log.topic(name)
        if not yes:
            confirm(f"Remove {_count(topic.describe())} from topic {name}? This cannot be undone.")
        purged = topic.purge()
    print_result(json, purged, f"removed {show_count(purged.removed, 'message')} of topic {name}")


@app.command()
def scheduled(
    name: NameArgument,
    limit: Annotated[int, typer.Option(min=1, help="The largest number of messages.")] = 100,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """List delayed messages that wait, the earliest first."""
    from lakelog.model.json_values import text_of

    with open_log(url, token) as log:
        found = log.topic(name).scheduled(limit)
    if json:
        for message in found:
            print_json(_scheduled_fields(message))
        return
    rows = [(show_time(each.due_at), each.partition, text_of(each.key) or "", each.id) for each in found]
    print_table(("DUE", "PARTITION", "KEY", "ID"), rows, empty=f"No delayed message waits in topic {name}.")


@app.command()
def cancel(
    name: NameArgument,
    message_id: Annotated[str, typer.Argument(metavar="ID", help="The id, as `topics scheduled` lists it.")],
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """Cancel a delayed message."""
    with open_log(url, token) as log:
        is_cancelled = log.topic(name).cancel(message_id)
    text = f"cancelled message {message_id}" if is_cancelled else f"message {message_id} does not wait any more"
    print_result(json, {"id": message_id, "cancelled": is_cancelled}, text)
    if not is_cancelled:
        raise typer.Exit(1)


def _scheduled_fields(message: ScheduledMessage) -> dict[str, object]:
    """Return a delayed message as the HTTP API shows it."""
    from msgspec import json

    from lakelog.wire.scheduled_shapes import SCHEDULED

    found: dict[str, object] = json.decode(json.encode(SCHEDULED.write(message)))
    return found


def _shape(info: TopicInfo) -> dict[str, object]:
    """Return a topic as the HTTP API shows it, with all limits of its retention."""
    from msgspec import structs, to_builtins

    shown: dict[str, object] = to_builtins(info)
    return shown | {"retention": structs.asdict(info.limits)}


def _print_settings(info: TopicInfo) -> None:
    fields: dict[str, object] = {
        "name": info.name,
        "partitions": info.partitions,
        "retention": _kept(info),
        "key field": info.key_field or "none",
        "idempotency keys": f"remembered for {show_duration(info.idempotency_memory)}",
        "created": f"{show_time(info.created_at)} ({show_since(info.created_at)} ago)",
    }
    if info.schema_version is not None:
        fields["schema"] = f"version {info.schema_version}, compatibility {info.compatibility}"
    if info.columns is not None:
        fields["columns"] = str(info.columns)
    if info.masks:
        fields["masks"] = ", ".join(info.masks)
    if info.tags:
        fields["tags"] = ", ".join(info.tags)
    print_fields(fields | {f"metadata {name}": text for name, text in info.metadata.items()})


def _print_partitions(partitions: tuple[PartitionInfo, ...]) -> None:
    print_table(
        ["partition", "log start", "high watermark", "messages", "size", "last append"],
        [
            (
                one.partition,
                one.log_start,
                one.high_watermark,
                one.high_watermark - one.log_start,
                show_size(one.bytes),
                f"{show_since(one.appended_at)} ago" if one.high_watermark else "never",
            )
            for one in partitions
        ],
        empty="The server does not know the partitions yet. Retry in a moment.",
    )


def _kept(info: TopicInfo) -> str:
    kept = info.retention
    limits = [
        kept.max_age and show_duration(kept.max_age),
        kept.max_count and show_count(kept.max_count, "message"),
        kept.max_bytes and show_size(kept.max_bytes),
    ]
    return ", ".join(str(limit) for limit in limits if limit) or "forever"


def _count(info: TopicInfo) -> str:
    return show_count(sum(one.high_watermark - one.log_start for one in info.partition_list), "message")


def _age(text: str | None) -> timedelta | None:
    return parse_duration(text) if text else None


def _size(text: str | None) -> int | None:
    return parse_size(text) if text else None
