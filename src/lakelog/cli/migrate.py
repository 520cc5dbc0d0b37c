"""`lakelog migrate`: brings the schema of every database up to this version."""

from __future__ import annotations

from lakelog.cli.databases import CellOption, DatabaseOption, find_cells, find_database
from lakelog.cli.output import print_json, print_line
from lakelog.cli.target import JsonOption


def migrate(database_url: DatabaseOption = None, cell: CellOption = None, json: JsonOption = False) -> None:
    """Bring the databases' schema up to this version.

    Safe to run twice at once, and while servers of the version before are running. A new cell joins by it.
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
