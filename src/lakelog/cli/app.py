"""The `lakelog` command, which combines the commands of all modules. Each command imports what it needs when it runs.

`lakelog --help` must be fast, so this module and the top level of the other modules of this package import only typer.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, ClassVar

import typer

from lakelog.cli import (
    apply,
    audit,
    backup,
    console,
    consume,
    dead,
    dev,
    doctor,
    fetch,
    groups,
    marks,
    mcp,
    migrate,
    outbox,
    pipelines,
    publish,
    serve,
    story,
    tail,
    tokens,
    top,
    topics,
    verify,
    worker,
)
from lakelog.cli.commands import Source
from lakelog.cli.failures import Commands
from lakelog.cli.output import print_line, print_result
from lakelog.cli.target import JsonOption

EPILOG = """
\b
Exit codes:
  0    done
  1    refused or failed
  2    wrong usage
  3    not found
  4    unreachable or overloaded: retry
  130  stopped by Ctrl-C
"""


def version(json: JsonOption = False) -> None:
    """Show the version."""
    print_result(json, {"version": _version()}, _version())


class _Root(Commands):
    # In the order in which a new user needs them.
    sources: ClassVar[Mapping[str, Source]] = {
        "dev": dev.dev,
        "topics": topics.app,
        "apply": apply.apply,
        "publish": publish.publish,
        "tail": tail.tail,
        "fetch": fetch.fetch,
        "story": story.story,
        "consume": consume.consume,
        "worker": worker.worker,
        "top": top.top,
        "groups": groups.app,
        "dead": dead.app,
        "outbox": outbox.app,
        "pipelines": pipelines.app,
        "audit": audit.audit,
        "mark": marks.mark,
        "marks": marks.marks,
        "serve": serve.serve,
        "console": console.console,
        "mcp": mcp.mcp,
        "migrate": migrate.migrate,
        "doctor": doctor.doctor,
        "verify": verify.verify,
        "backup": backup.app,
        "tokens": tokens.app,
        "version": version,
    }


# Plain help: loading rich would take longer than everything else combined.
app = typer.Typer(
    cls=_Root,
    rich_markup_mode=None,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog=EPILOG,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print_line(_version())
        raise typer.Exit


@app.callback()
def root(
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error came from.")] = False,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Show the version and exit.")
    ] = False,
) -> None:
    """Durable topics on PostgreSQL. Start with `lakelog dev`."""
    if debug:
        os.environ["LAKELOG_DEBUG"] = "1"


def _version() -> str:
    from importlib import metadata

    return metadata.version("lakelog")


def main() -> None:
    """Run the command line; the entry point of the console script."""
    app(prog_name="lakelog")
