"""The real parts of a run: a PostgreSQL cluster of its own on a real disk, servers as processes of their own, Redis.

All of them end with the run. Nothing that happens to run on the machine is used.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
import psutil

from lakelog.model.token import Right
from tests.kit.ports import free_port
from tests.kit.postgres import Cluster
from tests.kit.process import Process, Supervisor

SETTINGS: Mapping[str, str] = {
    "shared_buffers": "512MB",
    # Checkpoints would otherwise fall into one leg and not into the other.
    "max_wal_size": "8GB",
    "checkpoint_timeout": "30min",
}
LAKELOG = str(Path(sys.executable).with_name("lakelog"))
_IN_MEMORY = {"tmpfs", "ramfs"}


@dataclass(frozen=True, kw_only=True)
class Served:
    """A running server on a database of its own."""

    url: str
    port: int
    database: str
    process: Process
    token: str | None = None
    """With all rights, if the server asks for tokens."""


class Environment:
    """`with Stage() as environment, environment.serve() as served: …`"""

    settings = SETTINGS

    def __init__(self) -> None:
        tempfile.tempdir = _disk_folder()
        self.cluster = Cluster(settings=SETTINGS)
        self._supervisor = Supervisor()
        self.servers: list[Process] = []
        self.notes: dict[str, Any] = {}

    @property
    def version(self) -> str:
        return str(self.cluster.execute("show server_version")[0][0]).split()[0]

    def settle(self) -> None:
        """What the leg before has left to write is written now, not during the next one."""
        self.cluster.execute("checkpoint")

    @contextmanager
    def serve(self, env: Mapping[str, str] | None = None, *, authenticate: bool = False) -> Iterator[Served]:
        """One server process on a new, migrated database; `env` has further settings."""
        from lakelog.storage.postgres import migrate

        database = self.cluster.create_database()
        asyncio.run(migrate(database))
        try:
            with self.serve_on(database, env, authenticate=authenticate) as served:
                yield served
        finally:
            self.cluster.drop_database(database)

    @contextmanager
    def serve_on(
        self, database: str, env: Mapping[str, str] | None = None, *, authenticate: bool = False
    ) -> Iterator[Served]:
        """One server process on a database that has others, or none yet."""
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        settings = {"LAKELOG_DATABASE_URL": database, **(env or {})}
        argv = [LAKELOG, "serve", *(() if authenticate else ("--no-auth",)), "--port", str(port)]
        process = self._supervisor.start(argv, env=settings, ready=f"{url}/readyz", name="server")
        self.servers.append(process)
        try:
            token = _make_token(database) if authenticate else None
            yield Served(url=url, port=port, database=database, process=process, token=token)
        finally:
            self.servers.remove(process)
            process.terminate()

    @contextmanager
    def peer_database(self) -> Iterator[str]:
        """A database without anything of ours, in the same cluster."""
        database = self.cluster.create_database()
        try:
            yield database
        finally:
            self.cluster.drop_database(database)

    @contextmanager
    def redis(self) -> Iterator[int | None]:
        """The port of a Redis that flushes every write; None where Redis is not installed."""
        binary = shutil.which("redis-server")
        if binary is None:
            self.notes["redis"] = "not installed"
            yield None
            return
        folder = tempfile.mkdtemp(prefix="redis-", dir=self._supervisor.folder)
        port = free_port()
        options = {"port": port, "bind": "127.0.0.1", "dir": folder, "appendonly": "yes", "appendfsync": "always"}
        argv = [part for name, value in options.items() for part in (f"--{name}", str(value))]
        process = self._supervisor.start([binary, *argv, "--save", ""], ready=f"tcp://127.0.0.1:{port}", name="redis")
        self.notes["redis"] = "appendonly yes, appendfsync always"
        try:
            yield port
        finally:
            process.kill9()

    def __enter__(self) -> Environment:
        try:
            self.cluster.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._supervisor.close()
        self.cluster.close()


def _make_token(database: str) -> str:
    argv = [LAKELOG, "tokens", "create", "--name", "benchmark", "--rights", ",".join(Right), "--json"]
    made = subprocess.run([*argv, "--database-url", database], stdout=subprocess.PIPE, check=True)
    return str(msgspec.json.decode(made.stdout)["secret"])


def _disk_folder() -> str:
    """Where temporary folders go: on a disk, for an fsync of memory costs nothing and proves nothing."""
    for folder in (tempfile.gettempdir(), "/var/tmp"):
        if _filesystem(folder) not in _IN_MEMORY:
            return folder
    raise RuntimeError("No temporary folder is on a disk; set TMPDIR to one that is.")


def _filesystem(folder: str) -> str:
    mounts = [mount for mount in psutil.disk_partitions(all=True) if _holds(mount.mountpoint, folder)]
    return max(mounts, key=lambda mount: len(mount.mountpoint)).fstype if mounts else ""


def _holds(mountpoint: str, folder: str) -> bool:
    return folder == mountpoint or folder.startswith(mountpoint.rstrip("/") + "/")
