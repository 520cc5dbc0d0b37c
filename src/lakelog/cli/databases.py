"""URLs and connections of the databases that some commands use directly. Other commands use a server."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from lakelog.cli.units import parse_pairs
from lakelog.client.connecting.env_file import OBJECT_STORE
from lakelog.client.connecting.target import find_setting
from lakelog.errors import Unavailable
from lakelog.reporting import log_event, show_seconds

if TYPE_CHECKING:
    from lakelog.storage.store import Catalog

T = TypeVar("T")

_log = logging.getLogger(__name__)

_DATABASE_URL = "LAKELOG_DATABASE_URL"
START_SECONDS = 60.0
"""How long a starting server waits for PostgreSQL, which may be starting at the same time."""

DatabaseOption = Annotated[
    str | None,
    typer.Option("--database-url", help="The database, postgresql://…. Default: LAKELOG_DATABASE_URL."),
]
CellOption = Annotated[
    list[str] | None,
    typer.Option(
        "--cell", metavar="NAME=URL", help="A further database for partitions. May be repeated. Default: LAKELOG_CELLS."
    ),
]


def find_database(option: str | None) -> str:
    found = find_setting(_DATABASE_URL, option, "--database-url")
    if found is None:
        raise typer.BadParameter(
            "No database URL was given. Use --database-url postgresql://… or set LAKELOG_DATABASE_URL.",
            param_hint="--database-url",
        )
    if not found.text.startswith(("postgresql://", "postgres://")):
        raise typer.BadParameter("A database URL must begin with postgresql://", param_hint="--database-url")
    return found.text


def find_object_store(option: str | None, database_url: str) -> str | None:
    """Return the URL of the object store; that of `lakelog dev` only with the database of `lakelog dev`."""
    found = find_setting(OBJECT_STORE, option, "--object-store")
    if found is None or (found.file and found.file.settings.get(_DATABASE_URL) != database_url):
        return None
    return found.text


def find_cells(options: list[str] | None) -> dict[str, str]:
    """Return the URLs of all cells except the default one, by name."""
    import json
    import os

    if options:
        return parse_pairs(options, "--cell")
    try:
        cells = json.loads(os.environ.get("LAKELOG_CELLS") or "{}")
        return {str(name): str(url) for name, url in cells.items()}
    except (ValueError, AttributeError):
        raise typer.BadParameter(
            'LAKELOG_CELLS must be JSON such as {"name": "postgresql://…"}.', param_hint="--cell"
        ) from None


def with_catalog(url: str, work: Callable[[Catalog], Coroutine[Any, Any, T]]) -> T:
    """Open the catalog, run `work` with it, and close it."""
    import asyncio

    async def run() -> T:
        from lakelog.storage.postgres import open_catalog

        catalog = await open_catalog(url)
        try:
            return await work(catalog)
        finally:
            await catalog.close()

    return asyncio.run(run())


async def patiently(attempt: Callable[[], Awaitable[T]], *, limit: float = START_SECONDS, pause: float = 0.5) -> T:
    """Repeat `attempt` while PostgreSQL is unreachable, for at most `limit` seconds. Log the wait once."""
    import asyncio

    began, said = time.monotonic(), False
    while True:
        try:
            opened = await attempt()
        except Unavailable as error:
            if time.monotonic() >= began + limit:
                raise Unavailable(
                    f"{error.detail} Tried for {limit:g} s. Start PostgreSQL, or correct the database URL."
                ) from error
            if not said:
                message = f"{error.detail} Retrying for {limit:g} s."
                log_event(_log, logging.WARNING, "database_awaited", message, seconds=limit)
                said = True
            await asyncio.sleep(pause)
        else:
            if said:
                seconds = time.monotonic() - began
                message = f"PostgreSQL is available after {show_seconds(seconds)}."
                log_event(_log, logging.WARNING, "database_available", message, seconds=round(seconds, 1))
            return opened
