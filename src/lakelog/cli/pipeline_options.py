"""Options, connections and Spark sessions that the commands of `lakelog pipelines` share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
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
ToOption = Annotated[
    str, typer.Option("--to", metavar="TOPIC", help="The topic to write.", autocompletion=complete_topic)
]
SinceOption = Annotated[
    str | None, typer.Option(metavar="TIME", help="Begin with messages appended at this time or later.")
]
RateOption = Annotated[
    str | None, typer.Option(metavar="RATE", help="Publish at most this many, such as 1000/s, on average.")
]
EveryOption = Annotated[str | None, typer.Option(metavar="DURATION", help="Run at this interval until stopped.")]
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


@contextmanager
def spark_run(
    name: str, master: str, conf: list[str] | None, url: str | None, token: str | None, stopped: str = ""
) -> Iterator[tuple[ConnectionSettings, SparkSessions]]:
    """Provide the connection and the Spark sessions of a command, and stop Spark at the end.

    SIGTERM ends the block, as Ctrl-C does. After Ctrl-C, `stopped` is printed.
    """
    settings = parse_pairs(conf, "--conf")
    connection = find_connection(url, token)
    from lakelog.spark.pipelines.jobs import SparkSessions, stoppable

    # spark-submit started Java with a master before this program.
    chosen = None if "PYSPARK_GATEWAY_PORT" in os.environ else master
    sessions = SparkSessions(
        name=name, master=chosen, conf=settings, on_start=lambda: say(f"Starting Spark ({chosen or 'spark-submit'}) …")
    )
    try:
        with stoppable():
            yield connection, sessions
    except KeyboardInterrupt:
        if stopped:
            say(stopped)
        raise
    finally:
        sessions.stop()


def parse_age(text: str) -> timedelta:
    """Return a duration, which may be zero."""
    return timedelta(0) if text in ("0", "0s") else parse_duration(text)


def find_connection(url: str | None, token: str | None) -> ConnectionSettings:
    """Return the connection after checking that the server is reachable, because Spark takes seconds to start."""
    from lakelog.spark.session import ConnectionSettings

    open_log(url, token).close()
    target = find_target(url, token)
    return ConnectionSettings(url=target.url, token=target.token)


def parse_every(text: str | None) -> float | None:
    """Return the seconds of `--every`."""
    return None if text is None else parse_duration(text).total_seconds()
