"""The parts of a run: a dedicated PostgreSQL cluster on a real disk, server processes, and Redis.

All of them end with the run. Services that already run on the machine are not used.
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
from typing import TYPE_CHECKING, Any

import msgspec
import psutil

from benchmarks import parts
from lakelog.model.token import Right
from tests.kit.ports import free_port
from tests.kit.postgres import Cluster
from tests.kit.process import Process, Supervisor

if TYPE_CHECKING:
    from benchmarks.kafka_broker import KafkaBroker

SETTINGS: Mapping[str, str] = {
    "shared_buffers": "512MB",
    # Otherwise checkpoints would fall into one leg and not into another.
    "max_wal_size": "8GB",
    "checkpoint_timeout": "30min",
}
LAKELOG = str(Path(sys.executable).with_name("lakelog"))
_IN_MEMORY = {"tmpfs", "ramfs"}


@dataclass(frozen=True, kw_only=True)
class Served:
    """A running server with its own database."""

    url: str
    port: int
    database: str
    process: Process
    token: str | None = None
    """A token with all rights, if the server requires tokens."""


class Environment:
    """`with Environment() as environment, environment.serve() as served: …`"""

    settings = SETTINGS

    def __init__(self) -> None:
        tempfile.tempdir = _disk_folder()
        self.cluster = Cluster(settings=SETTINGS)
        self._supervisor = Supervisor()
        self.servers: list[Process] = []
        self.peers: list[Process] = []
        self.notes: dict[str, Any] = {}

    @property
    def version(self) -> str:
        return str(self.cluster.execute("show server_version")[0][0]).split()[0]

    def settle(self) -> None:
        """Flush pending writes of the previous leg, so that they do not fall into the next one."""
        self.cluster.execute("checkpoint")

    @contextmanager
    def serve(self, env: Mapping[str, str] | None = None, *, authenticate: bool = False) -> Iterator[Served]:
        """Start one server process on a new, migrated database; `env` has further settings."""
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
        """Start one server process on an existing database, which may have other servers."""
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
        """Create a database without Lakelog in the same cluster."""
        database = self.cluster.create_database()
        try:
            yield database
        finally:
            self.cluster.drop_database(database)

    @contextmanager
    def redis(self, *, wanted: bool = True) -> Iterator[int | None]:
        """Yield the port of a Redis that flushes every write; None if Redis is not installed or not wanted."""
        if not wanted:
            yield None
            return
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
        with self._peer(process):
            yield port

    @contextmanager
    def kafka(self, *, wanted: bool = True, fetch: bool, connector: bool = False) -> Iterator[KafkaBroker | None]:
        """Yield a Kafka broker; None if it is not wanted, or its jars are not there and may not be fetched.

        With `connector`, the jars of Spark's connector are needed too.
        """
        if not wanted:
            yield None
            return
        for part in (parts.KAFKA, parts.KAFKA_CONNECTOR) if connector else (parts.KAFKA,):
            if fetch:
                parts.install(part)
            if not parts.is_installed(part):
                self.notes["kafka"] = f"not installed; run scripts/install --part {part}"
                yield None
                return
        from benchmarks import kafka_broker

        broker = kafka_broker.KafkaBroker.start(self._supervisor)
        self.notes["kafka"] = kafka_broker.CONDITIONS
        with self._peer(broker.process):
            yield broker

    @contextmanager
    def _peer(self, process: Process) -> Iterator[None]:
        """Count the processor time of a peer's server, and end it."""
        self.peers.append(process)
        try:
            yield
        finally:
            self.peers.remove(process)
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
    """Return a temporary folder on a disk: an fsync in memory costs nothing and proves nothing."""
    for folder in (tempfile.gettempdir(), "/var/tmp"):
        if _filesystem(folder) not in _IN_MEMORY:
            return folder
    raise RuntimeError("No temporary folder is on a disk. Set TMPDIR to a folder on a disk.")


def _filesystem(folder: str) -> str:
    mounts = [mount for mount in psutil.disk_partitions(all=True) if _holds(mount.mountpoint, folder)]
    return max(mounts, key=lambda mount: len(mount.mountpoint)).fstype if mounts else ""


def _holds(mountpoint: str, folder: str) -> bool:
    return folder == mountpoint or folder.startswith(mountpoint.rstrip("/") + "/")
