"""`lakelog topics schema`: show, set, check and remove the JSON Schema of a topic, through a server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lakelog.cli.output import YesOption, confirm, print_json, print_line, print_result, print_table, say
from lakelog.cli.target import JsonOption, TokenOption, UrlOption, complete_topic, open_log
from lakelog.model.display import show_time
from lakelog.model.kinds import Compatibility

if TYPE_CHECKING:
    from lakelog.model.schema import SchemaCheck
    from lakelog.model.schema_nodes import JsonSchema

app = typer.Typer(no_args_is_help=True, help="Show, set, check and remove the JSON Schema of a topic.")

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.", autocompletion=complete_topic)]
FileArgument = Annotated[str, typer.Argument(metavar="FILE", help="A file with the JSON Schema; - reads stdin.")]
ModeOption = Annotated[
    Compatibility | None, typer.Option("--compatibility", help="The rule for changes. Default: the current one.")
]


@app.command()
def show(
    topic: TopicArgument,
    version: Annotated[int | None, typer.Option(min=1, help="Show this version. Default: the newest.")] = None,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """Print the schema of a topic as JSON."""
    with open_log(url, token) as log:
        found = log.topic(topic).schema(version)
    if json:
        print_json(found)
        return
    rule, newest = found.compatibility.value, found.versions[-1].version
    say(f"version {found.version} of {newest}, compatibility {rule}, set at {show_time(found.created_at)}")
    _print_schema(found.schema)


@app.command("set")
def set_schema(
    topic: TopicArgument,
    file: Annotated[
        str | None, typer.Argument(metavar="FILE", help="A file with the JSON Schema; - reads stdin.")
    ] = None,
    compatibility: ModeOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """Set the schema of a topic, or the rule for its changes.

    Values that do not match the schema are refused from then on. A change that breaks the rule is refused.
    """
    if file is None and compatibility is None:
        raise typer.BadParameter("Give a FILE with the schema, --compatibility, or both.")
    schema = None if file is None else read_schema(file)
    with open_log(url, token) as log:
        found = log.topic(topic).set_schema(schema, compatibility=compatibility)
    print_result(
        json,
        found,
        f"topic {topic} has version {found.version} of its schema, compatibility {found.compatibility.value}",
    )


@app.command()
def check(
    topic: TopicArgument,
    file: FileArgument,
    compatibility: ModeOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """Compare a schema with that of a topic, and change nothing.

    The exit code is 1 if the topic would refuse the schema.
    """
    schema = read_schema(file)
    with open_log(url, token) as log:
        found = log.topic(topic).check_schema(schema, compatibility=compatibility)
    if json:
        print_json(found)
    else:
        _print_check(topic, found)
    if not found.compatible:
        raise typer.Exit(1)


@app.command()
def remove(
    topic: TopicArgument,
    yes: YesOption = False,
    url: UrlOption = None,
    token: TokenOption = None,
    json: JsonOption = False,
) -> None:
    """Remove the schema of a topic.

    Values are no longer validated. The versions stay, and can be shown by their numbers.
    """
    with open_log(url, token) as log:
        if not yes:
            confirm(f"Remove the schema of topic {topic}? Every value is accepted from then on.")
        log.topic(topic).remove_schema()
    print_result(json, {"removed": topic}, f"removed the schema of topic {topic}")


def read_schema(file: str) -> JsonSchema:
    """Return the schema in a file, or on stdin for a dash."""
    import msgspec

    try:
        text = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        found = msgspec.json.decode(text)
    except OSError as error:
        raise typer.BadParameter(f"{file} cannot be read: {error.strerror}.") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{file} is not JSON: {error}.") from None
    if not isinstance(found, dict | bool):
        raise typer.BadParameter(f"{file} holds {type(found).__name__}, and a schema is a JSON object.")
    return found


def _print_schema(schema: JsonSchema) -> None:
    import msgspec

    print_line(msgspec.json.format(msgspec.json.encode(schema), indent=2).decode())


def _print_check(topic: str, found: SchemaCheck) -> None:
    if found.version is None:
        print_line(f"topic {topic} has no schema yet and accepts this one")
    elif not found.changed:
        print_line(f"the schema equals version {found.version} of topic {topic}")
    elif found.compatible:
        print_line(f"the schema is {found.compatibility.value} compatible with version {found.version}")
    else:
        say(f"The schema is not {found.compatibility.value} compatible with version {found.version}:")
        print_table(
            ["field", "rule", "reason"],
            [(each.path or "(value)", each.rule, each.reason) for each in found.changes],
            empty="",
            cut=("reason",),
        )
