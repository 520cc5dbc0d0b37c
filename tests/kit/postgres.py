"""PostgreSQL clusters for tests: created in a temporary folder, with fsync on, killed and paused on request.

It never uses a cluster that is already running, and does not know Lakelog's schema.
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
from typing import Any, ClassVar, LiteralString

import psutil
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
    # In the folder of the cluster, so that a killed one leaves nothing behind.
    "dynamic_shared_memory_type": "mmap",
}

_MEMORY = Path("/dev/shm")
_ROOM_BYTES = 8 << 30
"""A cluster stays far below this, but a test may have several."""

_LOCALE = ("-E", "UTF8", "--locale=C.UTF-8")


class Cluster:
    """One PostgreSQL: `with Cluster() as cluster: url = cluster.create_database()`.

    Clusters are copies of one template and share its system identifier; `own_identity` runs initdb for this one. With
    `primary`, it is a standby of that cluster, which must run: it follows it by streaming replication.
    `settings` are applied at each start: change them and restart.
    """

    prefers_memory: ClassVar[bool] = False
    """Whether new clusters are in memory where there is room, so that nothing waits for a disk.

    A test ends processes, not the machine, so that what was written is there afterwards in either case.
    """

    def __init__(
        self,
        *,
        settings: Mapping[str, str] | None = None,
        own_identity: bool = False,
        primary: Cluster | None = None,
    ) -> None:
        self.folder = _new_folder()
        self.port = free_port()
        self.settings = {**_SETTINGS, **(settings or {})}
        self._data = self.folder / "data"
        if primary is not None:
            source = ["-h", "127.0.0.1", "-p", str(primary.port), "-U", "postgres"]
            _run([_binary("pg_basebackup"), *source, "-D", str(self._data), "-R", "-c", "fast", "--no-sync"])
        elif own_identity:
            _initdb(self._data)
        else:
            _run(["cp", "-a", "--reflink=auto", str(_template()), str(self._data)])
        self._process: Process | None = None

    def start(self, *, within: float = 60.0) -> Cluster:
        command = Command(argv=self._argv(), ready=self._answers, user=unprivileged(), cwd=self.folder)
        self._process = Process(command, log_path=self.folder / "postgres.log")
        self._process.start(within=within)
        return self

    def stop(self, *, within: float = 60.0) -> None:
        """Shut down fast: end the sessions and write everything."""
        if self.running:
            _run([_binary("pg_ctl"), "stop", "-D", str(self._data), "-m", "fast", "-t", str(int(within))])
            self.process.wait(timeout=within)

    def kill9(self) -> None:
        """Send SIGKILL to the postmaster and all of its processes, as in a crash."""
        if self._process is not None:
            self._process.kill9()

    def restart(self, *, within: float = 60.0) -> Cluster:
        """Start again, after a fast shutdown if it still runs."""
        self.stop(within=within)
        return self.start(within=within)

    def promote(self, *, within: float = 30.0) -> None:
        """Make a standby the primary. Return when it accepts writes."""
        _run([_binary("pg_ctl"), "promote", "-D", str(self._data), "-t", str(int(within))])

    def caught_up_with(self, primary: Cluster) -> bool:
        """Return whether this standby has everything that the primary has written."""
        (written,) = primary.execute("select pg_current_wal_lsn()")
        (found,) = self.execute("select coalesce(pg_last_wal_replay_lsn() >= %s::pg_lsn, false)", [written[0]])
        return bool(found[0])

    def skip_transaction_ids(self, next_id: int) -> None:
        """Restart with a much higher next transaction id, as after years of writes."""
        self.stop()
        _run([_binary("pg_resetwal"), "-x", str(next_id), "-D", str(self._data)])
        # The status of the new transactions is in a file that PostgreSQL expects to exist.
        _run(["dd", "if=/dev/zero", f"of={self._data}/pg_xact/{next_id >> 20:04X}", "bs=256K", "count=1"])
        self.start()

    def pause(self) -> None:
        """Send SIGSTOP to all processes: connections stay open, and nothing responds."""
        self.process.stop()

    def resume(self) -> None:
        self.process.cont()

    def ensure_running(self) -> None:
        """Restore a cluster that an earlier test left paused or stopped."""
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
        """Return a URL for any role; `port` is the port of a proxy."""
        return f"postgresql://{user}@127.0.0.1:{port or self.port}/{database}"

    def create_database(self, *, template: str = "template1") -> str:
        """Create an empty database, or a copy of `template`, and return the superuser's URL for it."""
        name = f"test_{uuid.uuid4().hex[:12]}"
        # In memory, copying files takes half as long as writing them to the log; on a disk, it waits for checkpoints.
        strategy = sql.SQL("file_copy" if self.folder.is_relative_to(_MEMORY) else "wal_log")
        copy = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY {}")
        self.execute(copy.format(sql.Identifier(name), sql.Identifier(template), strategy))
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
        """Run one statement as superuser, outside of a transaction, and return its rows."""
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


def unprivileged() -> str | None:
    """Return the user to run PostgreSQL as, because it refuses to run as root; None for the current user."""
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
    who = unprivileged()
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
    # Not pytest's tmp_path: the unprivileged user cannot enter its parents.
    folder = Path(
        tempfile.mkdtemp(prefix="lakelog-pg-", dir=_MEMORY if Cluster.prefers_memory and _has_room() else None)
    )
    watchdog.watch_folder(str(folder))
    user = unprivileged()
    if user:
        shutil.chown(folder, user)
    return folder


def _has_room() -> bool:
    if not _MEMORY.is_dir():
        return False
    return min(shutil.disk_usage(_MEMORY).free, psutil.virtual_memory().available) > _ROOM_BYTES


def _initdb(data: Path) -> None:
    # --no-sync: only a power cut of the machine could lose what initdb wrote.
    _run([_binary("initdb"), "-D", str(data), "-U", "postgres", "-A", "trust", "--no-sync", *_LOCALE])


@functools.cache
def _template() -> Path:
    """Return an initialised folder, created once per test run; the watchdog removes it at the end."""
    data = _new_folder() / "template"
    _initdb(data)
    return data
