"""`lakelog dev`: starts PostgreSQL and a server with a schema and a token, for development.

The installation is for one person on one machine. Use `lakelog serve` for everything else.
"""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn
from urllib.parse import urlsplit

import typer

from lakelog.cli.output import print_line, say
from lakelog.client.connecting.env_file import ENV_FILE, OBJECT_STORE, read_env_file, short_path
from lakelog.errors import ConfigurationError, Conflict

if TYPE_CHECKING:
    from lakelog.cli.local_postgres import LocalPostgres
    from lakelog.engine import Engine
    from lakelog.server import ServerSettings
    from lakelog.storage.store import Catalog

DEFAULT_PORT = 8080


def dev(
    data: Annotated[Path, typer.Option(metavar="FOLDER", help="The folder for all data.")] = ENV_FILE.parent,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="The server's port.", show_default="8080")] = None,
    no_auth: Annotated[bool, typer.Option("--no-auth", help="Accept calls without a token.")] = False,
) -> None:
    """Start a development installation: PostgreSQL, server, token.

    Ctrl-C stops it; the data stays. Other `lakelog` commands in the same folder find the server by themselves.
    """
    import asyncio

    # Fail before a database is created if the `server` extra is missing.
    import lakelog.server  # noqa: F401
    from lakelog.cli import local_postgres
    from lakelog.cli.databases import with_catalog
    from lakelog.objectstore import check_shared
    from lakelog.storage.postgres import migrate

    signal.signal(signal.SIGTERM, _terminate)
    folder = data.absolute()
    check_shared(_object_store(folder))
    with _locked(folder):
        file = read_env_file(folder / "env")
        env = file.settings if file else {}
        known = urlsplit(env.get("LAKELOG_DATABASE_URL", "")).port
        chosen = _choose_port(port)
        with local_postgres.running(folder, port=known, say=say) as postgres:
            asyncio.run(migrate(postgres.url))
            token = with_catalog(postgres.url, partial(_token, None if no_auth else env.get("LAKELOG_TOKEN")))
            _serve(folder, postgres, chosen, None if no_auth else token)
            say("Stopping PostgreSQL …")
    say("Stopped. Run `lakelog dev` again to continue with the same data.")


def _serve(folder: Path, postgres: LocalPostgres, port: int, token: str | None) -> None:
    from lakelog.cli.serve import make_settings, open_engine
    from lakelog.console import LocalServer, LoginCodes, create_console
    from lakelog.server import run

    codes = LoginCodes()
    settings = make_settings(
        {
            "database_url": postgres.url,
            "cells": {},
            "host": "127.0.0.1",
            "port": port,
            "workers": 1,
            "authenticate": token is not None,
            "console": True,
            "object_store": _object_store(folder),
            "drain_seconds": 5.0,
            "log_level": "info",
            "log_format": "console",
        }
    )

    @asynccontextmanager
    async def opened(settings: ServerSettings) -> AsyncIterator[Engine]:
        # This command prints its own lines for start and stop, and development needs no audit log.
        for name in ("lakelog.audit", "lakelog.server.starting", "lakelog.server.serving"):
            logging.getLogger(name).setLevel(logging.WARNING)
        # The port is already open, so a call made right after the panel appears waits instead of failing.
        async with open_engine(settings) as engine:
            _write_env(folder, f"http://127.0.0.1:{port}", token, postgres.url)
            code = codes.issue(token) if token else None
            _print_panel(folder, f"http://127.0.0.1:{port}", token, postgres, code)
            yield engine

    run(opened, settings, lambda app: create_console(LocalServer(app), codes, app.drain.wait))


async def _token(secret: str | None, catalog: Catalog) -> str:
    """Return the previous secret if its token is still valid, or a new one."""
    from lakelog.model.token import Right, hash_secret, new_secret, new_token

    scope = await catalog.scope_create("default", "default")
    if secret is not None and await catalog.token_find(hash_secret(secret)):
        return secret
    secret = new_secret()
    await catalog.token_create(scope, new_token("dev", Right, datetime.now(UTC), None), hash_secret(secret))
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
    """Lock the folder: a second process would start a second PostgreSQL on the same files."""
    if not folder.exists():
        folder.mkdir(parents=True)
        # The folder must not be committed: it holds data and a secret token.
        (folder / ".gitignore").write_text("*\n")
    if os.geteuid() == 0:
        # PostgreSQL then runs as another user and must be able to enter the folder. Secret files have stricter modes.
        folder.chmod(0o711)
    with (folder / "lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict(
                f"Another `lakelog dev` is running in {folder}. Use its server, stop it, or give another --data."
            ) from None
        yield


def _write_env(folder: Path, url: str, token: str | None, database_url: str) -> None:
    settings = {"LAKELOG_URL": url, "LAKELOG_TOKEN": token, "LAKELOG_DATABASE_URL": database_url}
    if not os.environ.get(OBJECT_STORE):
        settings[OBJECT_STORE] = _object_store(folder)
    lines = ["# Written by `lakelog dev` at each start. Commands and lakelog.connect() find it from the folder above."]
    lines += [f"{name}={text}" for name, text in settings.items() if text is not None]
    fresh = folder / "env.new"
    fresh.unlink(missing_ok=True)
    fresh.touch(mode=0o600)
    fresh.write_text("\n".join(lines) + "\n")
    fresh.replace(folder / "env")


def _object_store(folder: Path) -> str:
    return os.environ.get(OBJECT_STORE) or (folder / "objects").as_uri()


def _print_panel(folder: Path, url: str, token: str | None, postgres: LocalPostgres, code: str | None) -> None:
    here = folder == ENV_FILE.parent.absolute()
    export = f"set -a; . {ENV_FILE if here else folder / 'env'}; set +a"
    example = """lakelog publish orders --value '{"total": 30}'"""
    lines = [
        f"server    {url}",
        f"token     {token or 'not required'}",
        f"console   {url}/console/{f'login?code={code} (for 60 s, once)' if code else ''}",
        f"database  {postgres.url}",
        f"data      {short_path(postgres.data)}",
        f"files     {_object_store(folder)}",
        f"log       {short_path(postgres.log)} (PostgreSQL {postgres.major})",
        "",
        "Open another terminal" + (" in this folder" if here else "") + " and try:",
        *([] if here else [f"  {export}"]),
        "  lakelog topics create orders",
        f"  {example}",
        "  lakelog tail orders",
        "",
        *([f"curl and other programs need the variables: {export}"] if here else []),
        "Press Ctrl-C to stop. The data stays.",
    ]
    if sys.stdout.isatty():
        from rich.console import Console

        # Rules instead of a box, so that the lines can be copied even where the terminal wraps them.
        console = Console()
        console.rule("Lakelog is running")
        print_line("\n".join(lines))
        console.rule()
    else:
        print_line("\n".join(["Lakelog is running", *lines]))


def _terminate(sig: int, frame: object) -> NoReturn:
    raise SystemExit(128 + sig)
