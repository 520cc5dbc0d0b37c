"""`lakelog topics`: create, list, describe, alter, delete and purge, through a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakelog.cli.asking import YesOption, confirm
from lakelog.cli.output import print_fields, print_json, print_line, print_table
from lakelog.cli.target import JsonOption, TokenOption, UrlOption, open_log
from lakelog.cli.units import parse_duration, parse_pairs, parse_size, show_count, show_duration, show_size, show_time

if TYPE_CHECKING:
    from datetime import timedelta

    from lakelog.client.values import PartitionInfo, TopicInfo

app = typer.Typer(no_args_is_help=True, help="Create, list, describe, alter, delete and purge topics.")

NameArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")]
AgeOption = Annotated[str | None, typer.Option(metavar="DURATION", help="Keep messages that long, as 7d or 12h.")]
CountOption = Annotated[int | None, typer.Option(min=1, help="Keep at most so many messages per partition.")]
BytesOption = Annotated[
    str | None, typer.Option(metavar="SIZE", help="Keep at most that much per partition, as 10GiB.")
]
KeyFieldOption = Annotated[str | None, typer.Option(help="Take keys from this field of JSON values.")]
TagOption = Annotated[list[str] | None, typer.Option("--tag", help="A tag; may be repeated.")]
MetadataOption = Annotated[list[str] | None, typer.Option("--metadata", metavar="NAME=TEXT", help="May be repeated.")]


@app.command()
def create(
    name: NameArgument,
    partitions: Annotated[
        int, typer.Option(min=1, help="How many partitions; can be raised later, never lowered.")
    ] = 1,
    max_age: AgeOption = None,
    max_count: CountOption = None,
    max_bytes: BytesOption = None,
    key_field: KeyFieldOption = None,
    tag: TagOption = None,
    metadata: MetadataOption = None,
    if_missing: Annotated[bool, typer.Option("--if-missing", help="Not an error if the topic exists.")] = False,
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
            if_missing=if_missing,
        )
    if json:
        print_json(shape(info))
    else:
        print_line(f"topic {info.name} with {show_count(info.partitions, 'partition')}")


@app.command("list")
def list_topics(url: UrlOption = None, token: TokenOption = None, json: JsonOption = False) -> None:
    """List the topics that the token can see."""
    with open_log(url, token) as log:
        topics = list(log.topics())
    if json:
        print_json({"topics": [shape(topic) for topic in topics]})
        return
    print_table(
        ["name", "partitions", "retention", "tags", "created"],
        [(info.name, info.partitions, _kept(info), ",".join(info.tags), show_time(info.created_at)) for info in topics],
        empty="No topics yet; create one with `lakelog topics create NAME`.",
    )


@app.command()
def describe(name: NameArgument, url: UrlOption = None, token: TokenOption = None, json: JsonOption = False) -> None:
    """Show a topic's settings and how far its partitions reach."""
    with open_log(url, token) as log:
        info = log.topic(name).describe()
    if json:
        print_json(shape(info))
        return
    _print_settings(info)
    print_line("")
    _print_partitions(info.partition_list)


@app.command()
def alter(
    name: NameArgument,
    partitions: Annotated[int | None, typer.Option(min=1, help="Raise the number of partitions to this.")] = None,
    max_age: AgeOption = None,
    max_count: CountOption = None,
    max_bytes: BytesOption = None,
    keep_all: Annotated[bool, typer.Option("--keep-all", help="Drop the limits of retention not given here.")] = False,
    key_field: KeyFieldOption = None,
    tag: TagOption = None,
    metadata: MetadataOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """Change a topic's settings, or add partitions. What is left out stays."""
    limits = {"max_age": _age(max_age), "max_count": max_count, "max_bytes": _size(max_bytes)}
    changes = {
        "partitions": partitions,
        **limits,
        "key_field": key_field,
        "tags": tuple(tag) if tag else None,
        "metadata": parse_pairs(metadata, "--metadata") or None,
    }
    given: dict[str, Any] = {option: change for option, change in changes.items() if change is not None}
    if keep_all:
        given |= {limit: None for limit, text in limits.items() if text is None}
    if not given:
        raise typer.BadParameter("Say what to change: --partitions, --max-age, …; `--help` lists all.")
    with open_log(url, token) as log:
        info = log.topic(name).alter(**given)
    if json:
        print_json(shape(info))
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
    """Delete a topic and all of its messages, for good."""
    with open_log(url, token) as log:
        topic = log.topic(name)
        if not yes:
            confirm(f"Delete topic {name} with {_count(topic.describe())}, for good?")
        topic.delete()
    if json:
        print_json({"deleted": name})
    else:
        print_line(f"deleted topic {name}")


@app.command()
def purge(
    name: NameArgument,
    yes: YesOption = False,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """Remove all messages published so far. The topic stays, and offsets go on."""
    with open_log(url, token) as log:
        topic = log.topic(name)
        if not yes:
            confirm(f"Remove {_count(topic.describe())} of topic {name}, for good?")
        purged = topic.purge()
    if json:
        print_json({"removed": purged.removed, "partitions": [_partition(one) for one in purged.partitions]})
    else:
        print_line(f"removed {show_count(purged.removed, 'message')} of topic {name}")


def shape(info: TopicInfo) -> dict[str, object]:
    """As in the HTTP API, with partitions only where they are known."""
    described: dict[str, object] = {
        "name": info.name,
        "incarnation": info.incarnation,
        "partitions": info.partitions,
        "epoch": info.epoch,
        "retention": {
            "max_age_ms": info.retention.max_age and _ms(info.retention.max_age),
            "max_count": info.retention.max_count,
            "max_bytes": info.retention.max_bytes,
        },
        "key_field": info.key_field,
        "idempotency_memory_ms": _ms(info.idempotency_memory),
        "tags": info.tags,
        "metadata": dict(info.metadata),
        "created_at": info.created_at,
    }
    if info.partition_list:
        described["partition_list"] = [_partition(one) for one in info.partition_list]
    return described


def _partition(info: PartitionInfo) -> dict[str, object]:
    return {
        "partition": info.partition,
        "log_start": info.log_start,
        "high_watermark": info.high_watermark,
        "bytes": info.bytes,
        "appended_at": info.appended_at,
    }


def _print_settings(info: TopicInfo) -> None:
    fields: dict[str, object] = {
        "name": info.name,
        "partitions": info.partitions,
        "retention": _kept(info),
        "key field": info.key_field or "none",
        "idempotency keys": f"remembered for {show_duration(info.idempotency_memory)}",
        "created": show_time(info.created_at),
    }
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
                show_time(one.appended_at) if one.high_watermark else "",
            )
            for one in partitions
        ],
        empty="No partitions are known yet; try again.",
    )


def _kept(info: TopicInfo) -> str:
    kept = info.retention
    limits = [
        kept.max_age and show_duration(kept.max_age),
        kept.max_count and show_count(kept.max_count, "message"),
        kept.max_bytes and show_size(kept.max_bytes),
    ]
    return ", ".join(str(limit) for limit in limits if limit) or "everything"


def _count(info: TopicInfo) -> str:
    return show_count(sum(one.high_watermark - one.log_start for one in info.partition_list), "message")


def _age(text: str | None) -> timedelta | None:
    return parse_duration(text) if text else None


def _size(text: str | None) -> int | None:
    return parse_size(text) if text else None


def _ms(duration: timedelta) -> int:
    return round(duration.total_seconds() * 1000)
