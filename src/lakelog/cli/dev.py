"""`lakelog dev`: everything for a first try in one command. PostgreSQL, schema, token, server, and where the data is.

What it makes is for one person on one machine; `lakelog serve` is for the rest.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn
from urllib.parse import urlsplit

import typer

from lakelog.cli.output import print_line, say
from lakelog.cli.target import ENV_FILE, read_env_file
from lakelog.errors import ConfigurationError, Conflict

if TYPE_CHECKING:
    from lakelog.cli.local_postgres import LocalPostgres
    from lakelog.engine import Engine
    from lakelog.server import ServerSettings
    from lakelog.storage.store import Catalog

DEFAULT_PORT = 8080


def dev(
    data: Annotated[Path, typer.Option(metavar="FOLDER", help="Where everything is kept.")] = ENV_FILE.parent,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="The server's port.", show_default="8080")] = None,
    no_auth: Annotated[bool, typer.Option("--no-auth", help="Ask for no token.")] = False,
) -> None:
    """Start everything for a first try: PostgreSQL, server, token.

    Ctrl-C stops it; the data stays. Other `lakelog` commands in the same folder find the server by themselves.
    """
    import asyncio

    from lakelog.cli import local_postgres

    signal.signal(signal.SIGTERM, _terminate)
    folder = data.absolute()
    with _locked(folder):
        env = read_env_file(folder / "env")
        known = urlsplit(env.get("LAKELOG_DATABASE_URL", "")).port
        chosen = _choose_port(port)
        with local_postgres.running(folder, port=known, say=say) as postgres:
            token = asyncio.run(_prepare(postgres.url, None if no_auth else env.get("LAKELOG_TOKEN")))
            _serve(folder, postgres, chosen, None if no_auth else token)
            say("Stopping PostgreSQL …")
    say("Stopped. The data stays; `lakelog dev` goes on with it.")


def _serve(folder: Path, postgres: LocalPostgres, port: int, token: str | None) -> None:
    from lakelog.cli.serve import make_settings, open_engine
    from lakelog.server import run

    settings = make_settings(
        {
            "database_url": postgres.url,
            "cells": {},
            "host": "127.0.0.1",
            "port": port,
            "workers": 1,
            "authenticate": token is not None,
            "object_store": _object_store(folder),
            "drain_seconds": 5.0,
            "log_level": "warning",
            "log_format": "console",
        }
    )

    @asynccontextmanager
    async def opened(settings: ServerSettings) -> AsyncIterator[Engine]:
        # The port is open by now: whoever reads the panel and is quick waits a moment, and is not refused.
        async with open_engine(settings) as engine:
            _write_env(folder, f"http://127.0.0.1:{port}", token, postgres.url)
            _print_panel(folder, f"http://127.0.0.1:{port}", token, postgres)
            yield engine

    run(opened, settings)


async def _prepare(url: str, secret: str | None) -> str:
    """Brings the schema up to date; the secret of the last time if it still holds, or a new one."""
    from lakelog.storage.postgres import migrate, open_catalog

    await migrate(url)
    catalog = await open_catalog(url)
    try:
        return await _token(catalog, secret)
    finally:
        await catalog.close()


async def _token(catalog: Catalog, secret: str | None) -> str:
    from lakelog.cli.tokens import new_token
    from lakelog.model.token import Right, hash_secret, new_secret

    scope = await catalog.scope_create("default", "default")
    if secret is not None and await catalog.token_find(hash_secret(secret)):
        return secret
    secret = new_secret()
    await catalog.token_create(scope, new_token("dev", frozenset(Right), datetime.now(UTC), None), hash_secret(secret))
    return secret


def _choose_port(asked: int | None) -> int:
    from lakelog.cli.local_postgres import free_port, is_free

    wanted = DEFAULT_PORT if asked is None else asked
    if is_free(wanted):
        return wanted
    if asked is not None:
        raise ConfigurationError(f"Port {asked} is taken by another program. Choose another with --port.")
    port = free_port()
    say(f"Port {DEFAULT_PORT} is taken by another program; using {port}. Give --port to choose.")
    return port


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keeps the folder for this process: a second one would start a second PostgreSQL on the same files."""
    folder.mkdir(parents=True, exist_ok=True)
    if os.geteuid() == 0:
        # PostgreSQL runs as another user then, and has to get through; the secrets in it have modes of their own.
        folder.chmod(0o711)
    with (folder / "lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict(
                f"Another `lakelog dev` runs in {folder}; use its server, stop it, or give --data and another folder."
            ) from None
        yield


def _write_env(folder: Path, url: str, token: str | None, database_url: str) -> None:
    settings = {"LAKELOG_URL": url, "LAKELOG_TOKEN": token, "LAKELOG_DATABASE_URL": database_url}
    lines = ["# Written by `lakelog dev` at each start. Commands in the folder above find it by themselves."]
    lines += [f"{name}={text}" for name, text in settings.items() if text is not None]
    fresh = folder / "env.new"
    fresh.unlink(missing_ok=True)
    fresh.touch(mode=0o600)
    fresh.write_text("\n".join(lines) + "\n")
    fresh.replace(folder / "env")


def _object_store(folder: Path) -> str:
    return os.environ.get("LAKELOG_OBJECT_STORE") or (folder / "objects").as_uri()


def _print_panel(folder: Path, url: str, token: str | None, postgres: LocalPostgres) -> None:
    here = folder == ENV_FILE.parent.absolute()
    exports = [] if here else [f"set -a; . {folder / 'env'}; set +a"]
    tries = [*exports, "lakelog topics create orders", "echo 'hello' | lakelog publish orders", "lakelog tail orders"]
    lines = [
        f"server    {url}",
        f"token     {token or 'none is asked for'}",
        f"database  {postgres.url}",
        f"data      {postgres.data}",
        f"files     {_object_store(folder)} (what is tiered)",
        f"log       {postgres.log} (PostgreSQL {postgres.major})",
        "",
        "In another terminal" + (", in this folder" if here else "") + ":",
        *(f"  {line}" for line in tries),
        "",
        f"Elsewhere: export LAKELOG_URL={url}" + (f" LAKELOG_TOKEN={token}" if token else ""),
        "Ctrl-C stops the server and PostgreSQL; the data stays.",
    ]
    if sys.stdout.isatty():
        from rich.console import Console

        # Rules and no box: the lines between them can be copied, also where the terminal has to wrap them.
        console = Console()
        console.rule("Lakelog is running")
        print_line("\n".join(lines))
        console.rule()
    else:
        print_line("\n".join(["Lakelog is running", *lines]))


def _terminate(sig: int, frame: object) -> NoReturn:
    raise SystemExit(128 + sig)
