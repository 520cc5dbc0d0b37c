"""The databases that commands work on directly: their addresses, and opening them. All else goes through a server."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from lakelog.cli.target import find_setting
from lakelog.cli.units import parse_pairs
from lakelog.errors import Unavailable

if TYPE_CHECKING:
    from lakelog.storage.store import Catalog

T = TypeVar("T")

START_SECONDS = 15.0
"""How long a server that starts waits for PostgreSQL: both may be starting with the machine."""

DatabaseOption = Annotated[
    str | None,
    typer.Option("--database-url", help="postgresql://… of the installation. Else LAKELOG_DATABASE_URL."),
]
CellOption = Annotated[
    list[str] | None,
    typer.Option("--cell", metavar="NAME=URL", help="A further database with partitions. Else LAKELOG_CELLS (JSON)."),
]


def find_database(option: str | None) -> str:
    url, _ = find_setting("LAKELOG_DATABASE_URL", option, "--database-url")
    if url is None:
        raise typer.BadParameter(
            "No database was named: give postgresql://… here, or set LAKELOG_DATABASE_URL.", param_hint="--database-url"
        )
    if not url.startswith(("postgresql://", "postgres://")):
        raise typer.BadParameter("A database's URL begins with postgresql://", param_hint="--database-url")
    return url


def find_cells(options: list[str] | None) -> dict[str, str]:
    """Names and URLs of the cells beside the default one."""
    import json
    import os

    if options:
        return parse_pairs(options, "--cell")
    try:
        cells = json.loads(os.environ.get("LAKELOG_CELLS") or "{}")
        return {str(name): str(url) for name, url in cells.items()}
    except (ValueError, AttributeError):
        raise typer.BadParameter('LAKELOG_CELLS is JSON: {"name": "postgresql://…"}', param_hint="--cell") from None


def with_catalog(url: str, work: Callable[[Catalog], Coroutine[Any, Any, T]]) -> T:
    """Runs the work on an open catalog."""
    import asyncio

    async def run() -> T:
        from lakelog.storage.postgres import open_catalog

        catalog = await open_catalog(url)
        try:
            return await work(catalog)
        finally:
            await catalog.close()

    return asyncio.run(run())


async def patiently(
    attempt: Callable[[], Awaitable[T]], *, say: Callable[[str], None], limit: float = START_SECONDS, pause: float = 0.5
) -> T:
    """Repeats while PostgreSQL cannot be reached, and says so once."""
    import asyncio

    deadline, said = time.monotonic() + limit, False
    while True:
        try:
            return await attempt()
        except Unavailable as error:
            if time.monotonic() >= deadline:
                raise Unavailable(
                    f"{error.detail} Tried for {limit:g} s; start PostgreSQL, or check the URL."
                ) from error
            if not said:
                say(f"{error.detail} Trying for {limit:g} s …")
                said = True
            await asyncio.sleep(pause)
