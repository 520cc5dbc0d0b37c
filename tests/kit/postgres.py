"""PostgreSQL clusters of our own for tests: made in a temporary folder, fsync on, killed and paused at will.

It never uses a cluster that happens to run, and knows nothing of Lakelog's schema.
"""

from __future__ import annotations

import functools
import os
import pwd
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, LiteralString

import psycopg
from psycopg import sql

from tests.kit import watchdog
from tests.kit.ports import free_port
from tests.kit.process import Command, Process, remove_folder

_SETTINGS: Mapping[str, str] = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "listen_addresses": "127.0.0.1",
    "max_connections": "200",
    "timezone": "UTC",
    # Several clusters share a small machine.
    "shared_buffers": "64MB",
}

_LOCALE = ("-E", "UTF8", "--locale=C.UTF-8")


class Cluster:
    """One PostgreSQL: `with Cluster() as cluster: url = cluster.create_database()`.

    Clusters are copies of one template, and so share their system identifier; `own_identity` runs initdb for this one.
    `settings` are given at each start: change them and restart.
    """

    def __init__(self, *, settings: Mapping[str, str] | None = None, own_identity: bool = False) -> None:
        self.folder = _new_folder()
        self.port = free_port()
        self.settings = {**_SETTINGS, **(settings or {})}
        self._data = self.folder / "data"
        if own_identity:
            _initdb(self._data)
        else:
            _run(["cp", "-a", "--reflink=auto", str(_template()), str(self._data)])
        self._process: Process | None = None

    def start(self, *, within: float = 60.0) -> Cluster:
        command = Command(argv=self._argv(), ready=self._answers, user=_unprivileged(), cwd=self.folder)
        self._process = Process(command, log_path=self.folder / "postgres.log")
        self._process.start(within=within)
        return self

    def stop(self, *, within: float = 60.0) -> None:
        """A fast shutdown: sessions are ended, everything is written."""
        if self.running:
            _run([_binary("pg_ctl"), "stop", "-D", str(self._data), "-m", "fast", "-t", str(int(within))])
            self.process.wait(timeout=within)

    def kill9(self) -> None:
        """SIGKILL to the postmaster and all of its processes: what a power cut of the program is."""
        if self._process is not None:
            self._process.kill9()

    def restart(self, *, within: float = 60.0) -> Cluster:
        """Starts again, after a fast shutdown where it still runs."""
        self.stop(within=within)
        return self.start(within=within)

    def pause(self) -> None:
        """SIGSTOP to all processes: connections stay open, nothing answers."""
        self.process.stop()

    def resume(self) -> None:
        self.process.cont()

    def ensure_running(self) -> None:
        """Makes a cluster that an earlier test left paused or ended serve again."""
        if self.running:
            self.resume()
        else:
            self.start()

    def close(self) -> None:
        self.kill9()
        remove_folder(self.folder)

    @property
    def process(self) -> Process:
        if self._process is None:
            raise RuntimeError("the cluster was not started; call start first")
        return self._process

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.running

    def url(self, database: str = "postgres", user: str = "postgres", *, port: int | None = None) -> str:
        """A URL for any role; `port` leads it through a proxy."""
        return f"postgresql://{user}@127.0.0.1:{port or self.port}/{database}"

    def create_database(self, *, template: str = "template1") -> str:
        """Makes an empty database, or a copy of `template`, and returns the superuser's URL of it."""
        name = f"test_{uuid.uuid4().hex[:12]}"
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(template))
        self.execute(statement)
        return self.url(name)

    def drop_database(self, url: str) -> None:
        name = url.rpartition("/")[2]
        self.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def execute(
        self,
        statement: LiteralString | sql.Composed,
        parameters: Sequence[object] = (),
        *,
        database: str = "postgres",
    ) -> list[tuple[Any, ...]]:
        """Runs one statement as superuser, outside of a transaction, and returns its rows."""
        with psycopg.connect(self.url(database), autocommit=True, connect_timeout=10) as connection:
            cursor = connection.execute(statement, parameters or None)
            return cursor.fetchall() if cursor.description else []

    def __enter__(self) -> Cluster:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _argv(self) -> list[str]:
        settings = {**self.settings, "port": str(self.port), "unix_socket_directories": str(self.folder)}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return [_binary("postgres"), "-D", str(self._data), *options]

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url(), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True


def _unprivileged() -> str | None:
    """The user to run PostgreSQL as, which refuses to run as root; None for the present one."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"


def _binary(name: str) -> str:
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: float(path.parent.parent.name))
    where = str(found[-1]) if found else shutil.which(name)
    if where is None:
        raise RuntimeError(f"PostgreSQL's {name} is not installed; run scripts/install")
    return where


def _run(argv: Sequence[str]) -> None:
    who = _unprivileged()
    group = pwd.getpwnam(who).pw_gid if who else None
    done = subprocess.run(
        list(argv),
        user=who,
        group=group,
        extra_groups=[] if who else None,
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{argv[0]} ended with {done.returncode}: {done.stderr or done.stdout}")


def _new_folder() -> Path:
    # Not pytest's tmp_path: its parents are closed to the unprivileged user.
    folder = Path(tempfile.mkdtemp(prefix="lakelog-pg-"))
    watchdog.watch_folder(str(folder))
    user = _unprivileged()
    if user:
        shutil.chown(folder, user)
    return folder


def _initdb(data: Path) -> None:
    # --no-sync: only a power cut of the machine could lose what initdb wrote.
    _run([_binary("initdb"), "-D", str(data), "-U", "postgres", "-A", "trust", "--no-sync", *_LOCALE])


@functools.cache
def _template() -> Path:
    """An initialised folder, made once per test run; the watchdog removes it at the end."""
    data = _new_folder() / "template"
    _initdb(data)
    return data
