"""`lakelog migrate`: updates the schema of every database to this version."""

from __future__ import annotations

from typing import Annotated

import typer

from lakelog.cli.databases import CellOption, DatabaseOption, find_cells, find_database
from lakelog.cli.output import print_json, print_line
from lakelog.cli.target import JsonOption


def migrate(
    database_url: DatabaseOption = None,
    cell: CellOption = None,
    raise_level: Annotated[
        bool,
        typer.Option("--raise-level", help="Raise the feature level, when all live servers have this version."),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Update the schema of all databases.

    It is safe to run twice at the same time, and while servers of the previous version run. It also adds new cells.
    With --raise-level, older versions cannot be used any more.
    """
    import asyncio

    from lakelog.storage import postgres

    url, cells = find_database(database_url), find_cells(cell)
    applied = asyncio.run(postgres.migrate(url, cells))
    levels = asyncio.run(postgres.raise_level(url, cells)) if raise_level else None
    if json:
        print_json({"applied": applied, **({"level": levels[1]} if levels else {})})
        return
    for step in applied:
        print_line(f"applied {step}")
    if not applied:
        print_line("the schema is up to date; nothing to apply")
    if levels:
        before, after = levels
        print_line(
            f"raised the feature level from {before} to {after}" if before < after else f"the feature level is {after}"
        )
