"""`lakelog migrate`: updates the schema of every database to this version."""

from __future__ import annotations

from lakelog.cli.databases import CellOption, DatabaseOption, find_cells, find_database
from lakelog.cli.output import print_json, print_line
from lakelog.cli.target import JsonOption


def migrate(database_url: DatabaseOption = None, cell: CellOption = None, json: JsonOption = False) -> None:
    """Update the schema of all databases.

    It is safe to run twice at the same time, and while servers of the previous version run. It also adds new cells.
    """
    import asyncio

    from lakelog.storage import postgres

    applied = asyncio.run(postgres.migrate(find_database(database_url), find_cells(cell)))
    if json:
        print_json({"applied": applied})
        return
    for step in applied:
        print_line(f"applied {step}")
    if not applied:
        print_line("the schema is up to date; nothing to apply")
