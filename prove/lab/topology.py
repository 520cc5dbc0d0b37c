"""The topology of a run: two PostgreSQL clusters, an S3 server, three servers, and a fault proxy on every link.

Everything listens on loopback, and ends with this process, even after an interrupt. `ClientProcesses` starts the
clients.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from lakelog.objectstore import ObjectStore, open_store
from prove.lab.claims import Claims
from prove.lab.client_processes import ClientProcesses
from prove.lab.faults.clocks import faked, set_clock
from prove.lab.load.calls import headers
from prove.lab.server_link import ServerLink
from prove.lab.store_link import StoreProxy
from prove.lab.workload import DRIVERS, Workload
from tests.kit.ports import free_port
from tests.kit.postgres import Cluster
from tests.kit.process import Command, Process, Supervisor
from tests.kit.proxy import FaultProxy
from tests.kit.s3 import S3Server

P = TypeVar("P", bound=FaultProxy)

ROOT = Path(__file__).resolve().parents[2]
SERVERS = 3
SECOND_CELL = "east"


class LabServer:
    """One `lakelog serve` process with its proxies.

    Clients connect through `client_link`, the server reaches the cells through `database_links`. Drivers of pipelines
    connect through one of `driver_links`, which lead to `client_link`, so faults of that link affect them too.
    """

    clock: Path
    """The file that sets the clock of the server."""

    def __init__(
        self,
        number: int,
        process: Process,
        port: int,
        client_link: ServerLink,
        driver_links: list[FaultProxy],
        database_links: list[FaultProxy],
    ) -> None:
        self.name = f"server{number}"
        self.process = process
        self.port = port
        self.client_link = client_link
        self.driver_links = driver_links
        self.database_links = database_links


class Topology:
    """Starts everything: `with Topology(folder) as topology:`.

    `code` is a folder to import Lakelog from instead of this checkout.
    """

    clients: ClientProcesses
    workload: Workload
    token: str
    tenant_token: str
    """The token of a tenant that must see nothing of the main project."""

    def __init__(
        self,
        folder: Path,
        *,
        code: Path | None = None,
        postgres: Mapping[str, str] | None = None,
        servers: int = SERVERS,
    ) -> None:
        self.folder = folder
        self.claims = Claims()
        self.clusters: list[Cluster] = []
        self.databases: list[str] = []
        self.servers: list[LabServer] = []
        self._postgres = dict(postgres or {})
        self._code = code
        self._count = servers
        self._stack = ExitStack()
        self.recorded: list[str] = []
        """The histories that the laboratory itself has written."""

    def __enter__(self) -> Topology:
        try:
            logs = self.folder / "logs"
            logs.mkdir(parents=True, exist_ok=True)
            self.supervisor = self._stack.enter_context(Supervisor(logs))
            self.s3 = self._stack.enter_context(S3Server())
            self.store_proxy = self._stack.enter_context(StoreProxy(self.s3))
            for _ in range(2):
                cluster = self._stack.enter_context(Cluster(settings={**self._postgres, "max_connections": "300"}))
                self.clusters.append(cluster)
                self.databases.append(cluster.create_database().rpartition("/")[2])
            self._lakelog("migrate")
            self.token, self.tenant_token = self.new_token("default"), self.new_token("tenant")
            for number in range(self._count):
                self._add_server(number)
            for server in self.servers:
                server.process.start()
            for server in self.servers:
                self.await_ready(server)
            clients = ClientProcesses(self.supervisor, self.folder, self.client_ports, path=self.path, token=self.token)
            self.clients = self._stack.enter_context(clients)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        # Before the proxies, so that servers do not observe their end.
        for server in self.servers:
            server.process.kill9()
        self._stack.close()

    @property
    def store(self) -> ObjectStore:
        """Return the store of segments, bypassing all faults."""
        return open_store(self.s3.url, self.s3.options)

    @property
    def store_environment(self) -> dict[str, str]:
        """Return the settings with which servers and pipelines reach the store: through the fault proxy."""
        return {**self.s3.env, "AWS_ENDPOINT_URL": self.store_proxy.endpoint}

    @property
    def client_ports(self) -> list[int]:
        """Return the ports for clients: those of the proxies."""
        return [server.client_link.port for server in self.servers]

    def driver_ports(self, number: int) -> list[int]:
        """Return the ports for the first or the second tiering driver."""
        return [server.driver_links[number].port for server in self.servers]

    def server(self, name: str) -> LabServer:
        return next(server for server in self.servers if server.name == name)

    def cluster(self, name: str) -> Cluster:
        return self.clusters[self.cells.index(name)]

    @property
    def server_names(self) -> list[str]:
        return [server.name for server in self.servers]

    @property
    def cells(self) -> list[str]:
        """Return the names by which faults claim clusters."""
        return [f"cell{number}" for number in range(len(self.clusters))]

    def await_ready(self, server: LabServer, *, within: float = 60.0) -> None:
        server.process._await_ready(f"http://127.0.0.1:{server.port}/readyz", within)

    def request(self, method: str, path: str, body: Any = None, *, server: int = 0, timeout: float = 30.0) -> Any:
        """Make one call that bypasses all proxies of clients. Raises RuntimeError for anything but a 2xx."""
        connection = http.client.HTTPConnection("127.0.0.1", self.servers[server].port, timeout=timeout)
        try:
            payload = None if body is None else json.dumps(body)
            connection.request(method, path, payload, headers(self.token))
            answer = connection.getresponse()
            data = answer.read()
            if not 200 <= answer.status < 300:
                raise RuntimeError(f"{method} {path}: {answer.status} {data[:300].decode(errors='replace')}")
            return json.loads(data) if data else None
        finally:
            connection.close()

    def add_standby(self, number: int) -> Cluster:
        """Start a standby of the cell's cluster. It streams from it, and no server uses it."""
        primary = self.clusters[number]
        return self._stack.enter_context(Cluster(settings=primary.settings, primary=primary))

    def promote(self, number: int, standby: Cluster) -> None:
        """Promote the standby, and lead all new connections to the cell to it."""
        standby.promote()
        self.clusters[number] = standby
        for server in self.servers:
            server.database_links[number].upstream = ("127.0.0.1", standby.port)

    def heal(self) -> None:
        """Undo all faults: start and resume all processes, and restore every link."""
        self.store_proxy.pass_through()
        for cluster in self.clusters:
            cluster.ensure_running()
        for server in self.servers:
            set_clock(server.clock, 0)
            for proxy in [*server.driver_links, server.client_link, *server.database_links]:
                proxy.pass_through()
            if server.process.running:
                server.process.cont()
            else:
                server.process.start()
        for server in self.servers:
            self.await_ready(server)
        self.clients.resume_all()

    @property
    def path(self) -> str:
        """Return the import path of processes, with the code under test first."""
        return os.pathsep.join(str(path) for path in (self._code, ROOT) if path)

    @property
    def server_environment(self) -> dict[str, str]:
        """Return the variables that decide which code servers and commands run."""
        return {"PYTHONPATH": self.path}

    @property
    def database_environment(self) -> dict[str, str]:
        """Return the settings with which commands reach the databases, without proxies."""
        url, cells = self.database_urls()
        return {"LAKELOG_DATABASE_URL": url, "LAKELOG_CELLS": json.dumps(cells)}

    def database_urls(self) -> tuple[str, dict[str, str]]:
        """Return the URL of the first cell, and the URLs of the other cells by name, without proxies."""
        return self.database_url(0), {SECOND_CELL: self.database_url(1)}

    def database_url(self, number: int) -> str:
        return self.clusters[number].url(self.databases[number])

    def _lakelog(self, *arguments: str) -> str:
        """Run a command and return its output, in a process, so that it uses the code under test."""
        env = {**self.database_environment, **self.server_environment}
        argv = [sys.executable, "-m", "prove.lab.server", *arguments]
        process = self.supervisor.start(argv, env=env, name=arguments[0])
        if process.wait(timeout=60) != 0:
            raise RuntimeError(f"`lakelog {arguments[0]}` failed: {process.log_text()[-1000:]}")
        return process.log_text()

    def new_token(self, project: str) -> str:
        """Return a token with all rights of a new project, or of an existing one."""
        about = ("--name", "lab", "--project", project, "--rights", "read,publish,manage", "--json")
        secret: str = json.loads(self._lakelog("tokens", "create", *about))["secret"]
        return secret

    def _add_server(self, number: int) -> None:
        port = free_port()
        clock = self.folder.resolve() / "clocks" / f"server{number}"
        database_links = [
            self._stack.enter_context(_quiet(FaultProxy("127.0.0.1", cluster.port))) for cluster in self.clusters
        ]
        urls = [
            cluster.url(name, port=link.port)
            for cluster, name, link in zip(self.clusters, self.databases, database_links, strict=True)
        ]
        argv = [sys.executable, "-m", "prove.lab.server", "serve", "--port", str(port)]
        env = {
            "LAKELOG_DATABASE_URL": urls[0],
            "LAKELOG_CELLS": json.dumps({SECOND_CELL: urls[1]}),
            "LAKELOG_DRAIN_SECONDS": "3",
            "LAKELOG_OBJECT_STORE": self.s3.url,
            **self.store_environment,
            **self.server_environment,
            **faked(clock),
        }
        process = Process(Command(argv=argv, env=env), log_path=self.supervisor.folder / f"server{number}.log")
        self.supervisor.processes.append(process)
        client_link = _quiet(ServerLink("127.0.0.1", port))
        self._stack.enter_context(client_link)
        driver_links = [
            self._stack.enter_context(_quiet(FaultProxy("127.0.0.1", client_link.port))) for _ in range(DRIVERS)
        ]
        self.servers.append(LabServer(number, process, port, client_link, driver_links, database_links))
        self.servers[-1].clock = clock


def _quiet(proxy: P) -> P:
    """Suppress messages about connections that are open at the end."""
    proxy._loop.set_exception_handler(lambda loop, context: None)
    return proxy
