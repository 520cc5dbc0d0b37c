"""`lakelog serve`: the composition root, which opens the stores and the engine, and runs the server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakelog.cli.databases import CellOption, DatabaseOption, find_cells, find_database, find_object_store, patiently
from lakelog.cli.units import parse_size
from lakelog.errors import ConfigurationError, Unavailable

if TYPE_CHECKING:
    from lakelog.engine import Engine
    from lakelog.server import App, ServerSettings
    from lakelog.server.calls import AsgiApp


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on.", show_default="127.0.0.1")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port to listen on; 0 for a free one.", show_default="8080")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes that share the port.", show_default="1")] = None,
    database_url: DatabaseOption = None,
    cell: CellOption = None,
    console: Annotated[bool, typer.Option("--console", help="Serve the web console below /console.")] = False,
    no_auth: Annotated[bool, typer.Option("--no-auth", help="Accept calls without a token. On loopback only.")] = False,
    allow_not_durable: Annotated[
        bool, typer.Option("--allow-not-durable", help="Start even if PostgreSQL may lose acknowledged messages.")
    ] = False,
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Memory for running calls, per process.", show_default="256MiB")
    ] = None,
    object_store: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The object store for segments: file:///folder or s3://bucket/prefix."),
    ] = None,
    tls_certificate: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="PEM file with the certificate, for https://. Loaded again when it changes."),
    ] = None,
    tls_key: Annotated[str | None, typer.Option(metavar="FILE", help="PEM file with the certificate's key.")] = None,
    tls_client_ca: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="PEM file with authorities; clients then need a certificate of one of them."),
    ] = None,
    internal_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="Port for calls of other servers; with several workers, the first of consecutive ports.",
            show_default="8480; any free port on loopback",
        ),
    ] = None,
    metrics_listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Port on loopback for the metrics of groups, without a token.",
        ),
    ] = None,
    log_format: Annotated[str | None, typer.Option(help="json or console.", show_default="json")] = None,
) -> None:
    """Serve topics over HTTP, until SIGTERM.

    Every option has an environment variable: LAKELOG_PORT for --port. LAKELOG_AUTHENTICATE=false is --no-auth.
    """
    from lakelog.server import configure_logging, run

    database_url = find_database(database_url)
    given: dict[str, Any] = {
        "host": host,
        "port": port,
        "workers": workers,
        "database_url": database_url,
        "cells": find_cells(cell),
        "console": console or None,
        "authenticate": False if no_auth else None,
        "allow_not_durable": allow_not_durable or None,
        "memory_bytes": parse_size(memory) if memory else None,
        "object_store": find_object_store(object_store, database_url),
        "tls_certificate": tls_certificate,
        "tls_key": tls_key,
        "tls_client_ca": tls_client_ca,
        "internal_port": internal_port,
        "metrics_listen": metrics_listen,
        "log_format": log_format,
    }
    settings = make_settings(given)
    configure_logging(settings.log_level, settings.log_format)
    check(settings)
    raise typer.Exit(run(open_engine, settings, make_console))


def make_console(app: App) -> AsgiApp:
    """Return the console of a server process."""
    from lakelog.console import LocalServer, create_console

    return create_console(LocalServer(app), stopping=app.drain.wait)


def make_settings(given: dict[str, Any]) -> ServerSettings:
    """Return the server's settings from the options, the environment or the defaults, in this order."""
    from pydantic import ValidationError

    from lakelog.server import ServerSettings

    try:
        return ServerSettings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        wrong = "; ".join(f"LAKELOG_{'_'.join(map(str, one['loc'])).upper()}: {one['msg']}" for one in error.errors())
        raise ConfigurationError(f"The settings are not valid. {wrong}.") from None


def check(settings: ServerSettings) -> None:
    """Fail on settings that would stop every worker, and warn about dangerous settings, before any worker starts."""
    import asyncio

    from lakelog.engine import Engine
    from lakelog.objectstore import check_shared
    from lakelog.server import check_durability, check_exposure, log_no_authentication, log_not_durable
    from lakelog.storage.postgres import open_stores

    if settings.object_store:
        check_shared(settings.object_store)
    check_exposure(settings.host, settings.authenticate)

    async def look() -> list[str]:
        try:
            catalog, cells = await open_stores(
                _url(settings), settings.cells, connections=settings.database_connections
            )
        except Unavailable:
            # The server starts unready, waits for PostgreSQL, and checks then.
            return []
        engine = Engine(catalog, cells)
        try:
            return await check_durability(engine, settings.allow_not_durable)
        finally:
            await engine.close()

    weak = asyncio.run(look())
    if weak and settings.workers > 1:
        # A single process logs it itself.
        log_not_durable(weak)
    if not settings.authenticate:
        log_no_authentication()


@asynccontextmanager
async def open_engine(settings: ServerSettings) -> AsyncIterator[Engine]:
    """Open and start the engine on the databases of the settings, with its maintenance."""
    from lakelog.engine import Engine, EngineSettings
    from lakelog.maintenance import Maintenance, OutboxRelays
    from lakelog.storage.postgres import PostgresOutbox, open_stores

    opening = partial(open_stores, _url(settings), settings.cells, connections=settings.database_connections)
    catalog, cells = await patiently(opening, limit=settings.start_seconds)
    chosen = EngineSettings(memory_bytes=settings.memory_bytes, object_store=settings.object_store, logs_groups=True)
    engine = Engine(catalog, cells, chosen)
    maintenance = Maintenance(engine, retention_seconds=settings.retention_seconds)
    relays = OutboxRelays(engine, [PostgresOutbox(url) for url in settings.outbox_urls], PostgresOutbox(_url(settings)))
    try:
        await engine.start()
        maintenance.start()
        relays.start()
        yield engine
    finally:
        await relays.stop()
        await maintenance.stop()
        await engine.close()


def _url(settings: ServerSettings) -> str:
    assert settings.database_url is not None
    return settings.database_url
