"""A fleet for tests: PostgreSQL, servers as real processes, and a fault proxy in front of each server."""

from __future__ import annotations

import asyncio
import http.client
import json
import secrets
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from lakelog.model.token import Right, Token, hash_secret, new_secret
from lakelog.storage.postgres import migrate, open_catalog
from prove.history.lines import identity_of, value_hash
from prove.history.tables import CallOutcome, ReaderKind, Tables, columns, text_id
from tests.kit.ports import free_port
from tests.kit.postgres import Cluster
from tests.kit.process import Process, Supervisor
from tests.kit.proxy import FaultProxy

Row = dict[str, int]
READER = "final-read"
"""The process name of the final read."""
LAKELOG = str(Path(sys.executable).with_name("lakelog"))


async def new_token(url: str, project: str = "default") -> str:
    """Return a token with every right in the default environment of the project."""
    catalog = await open_catalog(url)
    try:
        secret = new_secret()
        scope = await catalog.scope_create(project, "default")
        token = Token(
            id=secrets.token_hex(4), name="test", rights=tuple(Right), created_at=datetime.now(UTC), expires_at=None
        )
        await catalog.token_create(scope, token, hash_secret(secret))
        return secret
    finally:
        await catalog.close()


class Fleet:
    """`with Fleet(cluster, servers=2) as fleet:`; clients use `fleet.proxies[n].port`, checks `fleet.ports[n]`."""

    def __init__(
        self, cluster: Cluster, *, servers: int = 2, authenticate: bool = False, env: Mapping[str, str] | None = None
    ) -> None:
        self.cluster = cluster
        self.url = cluster.create_database()
        asyncio.run(migrate(self.url))
        self.token = asyncio.run(new_token(self.url)) if authenticate else None
        self._supervisor = Supervisor()
        self.ports = [free_port() for _ in range(servers)]
        self.servers: list[Process] = []
        self.proxies: list[FaultProxy] = []
        self._env = dict(env or {})

    def __enter__(self) -> Fleet:
        try:
            for port in self.ports:
                argv = [LAKELOG, "serve", "--port", str(port), "--database-url", self.url]
                argv += [] if self.token else ["--no-auth"]
                ready = f"http://127.0.0.1:{port}/readyz"
                self.servers.append(self._supervisor.start(argv, env=self._env, ready=ready, name="server"))
                self.proxies.append(FaultProxy("127.0.0.1", port).start())
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        for proxy in self.proxies:
            proxy.close()
        self._supervisor.close()

    def request(self, method: str, path: str, body: Any = None, *, server: int = 0) -> Any:
        """Call a server directly, without its proxy, and return the decoded response. Anything but a 2xx fails the
        test.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self.ports[server], timeout=30)
        try:
            payload = None if body is None else json.dumps(body)
            headers = {"Content-Type": "application/json"}
            if self.token:
                headers["Authorization"] = f"Bearer {self.token}"
            connection.request(method, path, payload, headers)
            answer = connection.getresponse()
            data = answer.read()
            assert 200 <= answer.status < 300, (answer.status, data[:500])
            return json.loads(data) if data else None
        finally:
            connection.close()

    def create_topic(self, name: str, partitions: int, **settings: Any) -> None:
        self.request("POST", "/v1/topics", {"name": name, "partitions": partitions, **settings})

    def read_all(self, topic: str, *, server: int = 0) -> Tables:
        """Read every message of the topic as a new reader: record `seen`, and `read` for each partition."""
        described = self.request("GET", f"/v1/topics/{topic}", server=server)
        seen: list[Row] = []
        read: list[Row] = []
        for part in described["partition_list"]:
            began = time.monotonic_ns()
            found = list(self._messages(topic, part, server=server))
            seen += found
            read.append(_read(topic, part, found, began))
        return Tables(by_name={"seen": columns("seen", seen), "read": columns("read", read)})

    def _messages(self, topic: str, part: Mapping[str, int], *, server: int) -> Iterator[Row]:
        number, offset, end = part["partition"], part["log_start"], part["high_watermark"]
        path = f"/v1/topics/{topic}/partitions/{number}/messages"
        fixed = {
            "topic": text_id(topic),
            "partition": number,
            "reader": int(ReaderKind.FINAL),
            "process": text_id(READER),
            "counter": number,
        }
        while offset < end:
            fetched = self.request("GET", f"{path}?offset={offset}&limit=5000", server=server)
            assert fetched["next_offset"] > offset, "a fetch below the high watermark must get on"
            for message in fetched["messages"]:
                yield {
                    **fixed,
                    "offset": message["offset"],
                    "hash": value_hash(message["value"].encode()),
                    "key": text_id(message.get("key")),
                    "identity": identity_of(message.get("idempotency_key")),
                    "completed_ns": time.monotonic_ns(),
                }
            offset = fetched["next_offset"]


def _read(topic: str, part: Mapping[str, int], found: Sequence[Row], began: int) -> Row:
    """Return one row for the whole read of a partition."""
    return {
        "process": text_id(READER),
        "counter": part["partition"],
        "outcome": int(CallOutcome.OK),
        "invoked_ns": began,
        "completed_ns": time.monotonic_ns(),
        "topic": text_id(topic),
        "partition": part["partition"],
        "offset": part["log_start"],
        "reader": int(ReaderKind.FINAL),
        "first": found[0]["offset"] if found else -1,
        "count": len(found),
        "log_start": part["log_start"],
        "high_watermark": part["high_watermark"],
    }
