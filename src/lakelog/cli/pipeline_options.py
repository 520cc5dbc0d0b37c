"""Options and connections that the commands of `lakelog pipelines` share."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from lakelog.cli.output import say
from lakelog.cli.target import complete_topic, find_target, open_log
from lakelog.cli.units import parse_duration, parse_pairs

if TYPE_CHECKING:
    from lakelog.spark.pipelines.jobs import SparkSessions
    from lakelog.spark.session import ConnectionSettings

TopicOption = Annotated[
    str | None,
    typer.Option("--topic", help="Only this topic. Default: all, one after another.", autocompletion=complete_topic),
]
TopicsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TOPIC]...", help="The topics. Default: all.", autocompletion=complete_topic),
]
DryOption = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")]
MasterOption = Annotated[
    str, typer.Option(help="Where Spark runs: local[2] for two cores of this machine, or spark://host:7077.")
]
ConfOption = Annotated[
    list[str] | None, typer.Option("--conf", metavar="NAME=TEXT", help="A Spark setting. May be repeated.")
]


def make_sessions(name: str, master: str, conf: list[str] | None) -> SparkSessions:
    settings = parse_pairs(conf, "--conf")
    from lakelog.spark.pipelines.jobs import SparkSessions

    return SparkSessions(name=name, master=master, conf=settings, on_start=lambda: say(f"Starting Spark ({master}) …"))


def parse_age(text: str) -> timedelta:
    """Return a duration, which may be zero."""
    return timedelta(0) if text in ("0", "0s") else parse_duration(text)


def find_connection(url: str | None, token: str | None) -> ConnectionSettings:
    """Return the connection after checking that the server is reachable, because Spark takes seconds to start."""
    from lakelog.spark.session import ConnectionSettings

    open_log(url, token).close()
    target = find_target(url, token)
    return ConnectionSettings(url=target.url, token=target.token)
