"""Faults of PostgreSQL: one of the two clusters is killed, stopped, loses its sessions, or cannot vacuum."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

import psycopg

from prove.lab.faults.fault import Base, Shown, Sign

if TYPE_CHECKING:
    from prove.lab.scene import Scene


APPEND_WITHIN = 2.0
TOLD_AFTER = 0.03
"""From a commit until its caller knows of it."""


class BackendsTerminated(Base):
    """All sessions of the servers in one cell are ended."""

    kind = "backends terminated"
    counts_by = Shown.by(Sign.UNKNOWN)

    def begin(self, scene: Scene, chance: random.Random) -> None:
        self.seconds = 1.5
        name = self.claim_one(scene, scene.cells, chance)
        self._cluster, number = scene.cluster(name), scene.cells.index(name)
        self._database = scene.databases[number]
        self._terminate()

    def end(self, scene: Scene) -> None:
        # A second time: most of the first were idle, and nobody noticed.
        self._terminate()
        self.release(scene)

    def _terminate(self) -> None:
        statement = "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s"
        for _ in range(3):
            self._cluster.execute(statement, (self._database,))


class PostgresKilled(Base):
    """SIGKILL to the postmaster and all of its processes, just after a publish; it recovers from its log."""

    kind = "postgres killed"
    counts_by = Shown.by(Sign.UNKNOWN)

    def begin(self, scene: Scene, chance: random.Random) -> None:
        self.seconds = chance.uniform(0.1, 2.0)
        name = self.claim_one(scene, scene.cells, chance)
        self._cluster = scene.cluster(name)
        _await_append(scene.database_url(scene.cells.index(name)))
        self._cluster.kill9()

    def end(self, scene: Scene) -> None:
        self._cluster.start()
        self.release(scene)


def _await_append(url: str) -> None:
    """Until somebody was told of a message, as far as one can see from here; or some time has passed."""
    late = time.monotonic() + APPEND_WITHIN
    with psycopg.connect(url, autocommit=True) as connection:
        ends = "select pid, max(next_offset) from lakelog.head group by pid order by pid"
        before = connection.execute(ends).fetchall()
        while connection.execute(ends).fetchall() == before and time.monotonic() < late:
            time.sleep(0.002)
    time.sleep(TOLD_AFTER)


class PostgresStopped(Base):
    """SIGSTOP to all of its processes, beyond the leases, and back."""

    kind = "postgres stopped and back"
    counts_by = Shown.by(Sign.UNKNOWN, after=5.0)

    def begin(self, scene: Scene, chance: random.Random) -> None:
        self.seconds = chance.uniform(3.5, 5.0)
        self._cluster = scene.cluster(self.claim_one(scene, scene.cells, chance))
        self._cluster.pause()

    def end(self, scene: Scene) -> None:
        self._cluster.resume()
        self.release(scene)


class HeldSnapshot(Base):
    """A transaction that stays open with a snapshot: nothing can be vacuumed meanwhile."""

    kind = "held xmin"
    # It must not be noticed at all, and so never counts.
    counts_by = Shown.by()

    def begin(self, scene: Scene, chance: random.Random) -> None:
        self.seconds = chance.uniform(8.0, 15.0)
        number = chance.randrange(len(scene.clusters))
        self.about = scene.cells[number]
        self._connection: psycopg.Connection[tuple[object, ...]] | None = None
        try:
            self._connection = psycopg.connect(scene.database_url(number), connect_timeout=5)
            self._connection.execute("set transaction isolation level repeatable read")
            self._connection.execute("select count(*) from pg_class")
        except psycopg.OperationalError:
            # Another fault has the cluster.
            self.about += ", which was down"

    def end(self, scene: Scene) -> None:
        if self._connection is not None:
            self._connection.close()
