"""The `lakelog` command, which combines the commands of all modules. Each command imports what it needs when it runs.

`lakelog --help` must be fast, so this module and the top level of the other modules of this package import only typer.
"""

from __future__ import annotations

import os
from typing import Annotated

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
    tail,
    tokens,
    top,
    topics,
    verify,
    worker,
)
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

# Plain help: loading rich would take longer than everything else combined.
app = typer.Typer(
    cls=Commands,
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


app.command()(dev.dev)
app.command()(serve.serve)
app.command()(migrate.migrate)
app.command()(doctor.doctor)
app.command()(verify.verify)
app.add_typer(backup.app, name="backup")
app.add_typer(tokens.app, name="tokens")
app.add_typer(topics.app, name="topics")
app.command()(apply.apply)
app.command()(publish.publish)
app.command()(fetch.fetch)
app.command()(tail.tail)
app.command()(consume.consume)
app.command()(worker.worker)
app.add_typer(groups.app, name="groups")
app.command()(top.top)
app.command()(audit.audit)
app.command()(marks.mark)
app.command()(marks.marks)
app.command()(console.console)
app.command()(mcp.mcp)
app.add_typer(dead.app, name="dead")
app.add_typer(outbox.app, name="outbox")
app.add_typer(pipelines.app, name="pipelines")


@app.command()
def version(json: JsonOption = False) -> None:
    """Show the version."""
    print_result(json, {"version": _version()}, _version())


def _version() -> str:
    from importlib import metadata

    return metadata.version("lakelog")


def main() -> None:
    """Run the command line; the entry point of the console script."""
    app(prog_name="lakelog")
