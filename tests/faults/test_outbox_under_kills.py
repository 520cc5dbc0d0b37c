"""Publishes in callers' transactions while callers, relays, servers and PostgreSQL are killed.

The topic holds what was committed, each message once and each key in order. Full size: 200,000 transactions on 16
connections, 50,000 with each library, 30 % of them rolled back.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

import lakelog
from lakelog.client._sync.topic import Topic
from lakelog.storage.postgres import install_outbox
from tests.kit.fleet import LAKELOG, Fleet
from tests.kit.postgres import Cluster
from tests.kit.process import Command, Process
from tests.kit.size import Size
from tests.kit.waiting import eventually

PARTITIONS = 4
WRITERS = 4
LIBRARIES = ("psycopg", "asyncpg", "sqlalchemy", "django")
PROGRAM = str(Path(__file__).with_name("outbox_writer.py"))


class Victims:
    """Kills a random process at intervals, and starts it again."""

    def __init__(self, fleet: Fleet, relay: Process, seconds: float, most: int) -> None:
        self._fleet, self._relay, self._seconds, self._most = fleet, relay, seconds, most
        self._chance = random.Random(23)
        self._at = time.monotonic() + seconds
        self.kills: dict[str, int] = {}

    def kill_one(self, writers: dict[str, Process]) -> str | None:
        """Kill one process if it is time. Return the writer that was killed, which is not started again."""
        if time.monotonic() < self._at or sum(self.kills.values()) >= self._most:
            return None
        running = [name for name, each in writers.items() if each.running]
        kind = self._chance.choice(["writer", "relay", "server", "server", "postgres"])
        victim = None
        if kind == "writer" and running:
            victim = self._chance.choice(running)
            writers[victim].kill9()
        elif kind == "relay":
            self._relay.kill9()
            self._relay.start()
        elif kind == "server":
            server = self._chance.choice(self._fleet.servers)
            server.kill9()
            server.restart(within=120)
        elif kind == "postgres":
            self._fleet.cluster.kill9()
            self._fleet.cluster.restart(within=120)
        self.kills[kind] = self.kills.get(kind, 0) + 1
        self._at = time.monotonic() + self._seconds
        return victim


@contextmanager
def _fleet(cluster: Cluster) -> Iterator[tuple[Fleet, str]]:
    """Start servers that relay the outbox of another database, and yield them and the URL of that database."""
    app = cluster.create_database()
    with psycopg.connect(app) as connection:
        connection.execute("create table done (key text, number int, primary key (key, number))")
    asyncio.run(install_outbox(app))
    with Fleet(cluster, env={"LAKELOG_OUTBOX_URLS": json.dumps([app])}) as fleet:
        yield fleet, app


def _writer(tmp_path: Path, library: str, name: str, app: str, fleet: Fleet, count: int) -> Process:
    server = f"http://127.0.0.1:{fleet.ports[len(name) % 2]}"
    argv = [sys.executable, PROGRAM, library, app, server, name, str(count)]
    return Process(Command(argv=argv), log_path=tmp_path / f"{name}.log").start()


def _write_all(tmp_path: Path, app: str, fleet: Fleet, victims: Victims, per_library: int) -> None:
    for library in LIBRARIES:
        share = per_library // WRITERS
        writers = {
            f"{library}-{number}": _writer(tmp_path, library, f"{library}-{number}", app, fleet, share)
            for number in range(WRITERS)
        }
        replaced = 0
        try:
            while any(each.running for each in writers.values()):
                time.sleep(0.02)
                if victims.kill_one(writers) is not None:
                    replaced += 1
                    name = f"{library}-again-{replaced}"
                    writers[name] = _writer(tmp_path, library, name, app, fleet, share // 2)
            assert all(each.returncode in (0, -9) for each in writers.values())
        finally:
            for each in writers.values():
                each.kill9()


def _committed(app: str) -> list[tuple[str, int]]:
    with psycopg.connect(app) as connection:
        return connection.execute("select key, number from done order by key, number").fetchall()


@pytest.mark.timeout(1800)
def test_the_topic_holds_what_was_committed_once_and_in_order(tmp_path: Path, size: Size) -> None:
    per_library = size.pick(ci=160, full=50_000)
    with Cluster(settings={"max_connections": "200"}) as cluster, _fleet(cluster) as (fleet, app):
        fleet.create_topic("orders", PARTITIONS)
        relay = Process(
            Command(argv=[LAKELOG, "outbox", "relay", "--database-url", app, "--log-database-url", fleet.url]),
            log_path=tmp_path / "relay.log",
        ).start()
        victims = Victims(fleet, relay, *size.pick(ci=(1.0, 3), full=(4.0, 10_000)))
        try:
            began = time.monotonic()
            _write_all(tmp_path, app, fleet, victims, per_library)
            wrote = time.monotonic() - began
            committed = _committed(app)
            with lakelog.connect(f"http://127.0.0.1:{fleet.ports[0]}") as log:
                topic = log.topic("orders")
                eventually(lambda: _count(topic) >= len(committed), within=120, every=0.2)
                time.sleep(1.0)
                found = [((message.key or b"").decode(), message.value["number"]) for message in topic.read()]
        finally:
            relay.kill9()
    print(f"{len(committed)} committed in {wrote:.0f} s, {len(found)} in the topic, kills {victims.kills}")
    assert sorted(found) == committed
    by_key: dict[str, list[int]] = {}
    for key, number in found:
        by_key.setdefault(key, []).append(number)
    assert all(numbers == sorted(numbers) for numbers in by_key.values())


def _count(topic: Topic[Any]) -> int:
    return sum(each.high_watermark - each.log_start for each in topic.describe().partition_list)
