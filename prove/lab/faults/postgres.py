"""Faults of PostgreSQL: a cluster is killed or stopped, loses sessions or its disk, is overloaded, or cannot vacuum."""

from __future__ import annotations

import contextlib
import random
import shutil
import time
from typing import TYPE_CHECKING

import psycopg

from prove.lab.claims import Busy
from prove.lab.faults.fault import BaseFault, Evidence, Symptom
from tests.kit.waiting import NeverTrue, eventually

if TYPE_CHECKING:
    from prove.lab.topology import Topology
    from tests.kit.postgres import Cluster
    from tests.kit.process import Process


TERMINATE = "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s"
APPEND_WITHIN = 2.0
TOLD_AFTER = 0.03
"""Time from a commit until its caller has the response."""


class BackendsTerminated(BaseFault):
    """All sessions of the servers in one cell are terminated."""

    kind = "backends terminated"
    counts_by = Evidence.by(Symptom.UNKNOWN)

    def begin(self, topology: Topology, chance: random.Random) -> None:
        self.seconds = 1.5
        name = self.claim_one(topology, topology.cells, chance)
        self._cluster, number = topology.cluster(name), topology.cells.index(name)
        self._database = topology.databases[number]
        self._terminate()

    def end(self, topology: Topology) -> None:
        # Repeat it, because most of the first sessions were idle.
        self._terminate()
        self.release(topology)

    def _terminate(self) -> None:
        for _ in range(3):
            self._cluster.execute(TERMINATE, (self._database,))


class PostgresKilled(BaseFault):
    """A cluster with all its processes is killed just after a publish. It recovers from its log."""

    kind = "postgres killed"
    counts_by = Evidence.by(Symptom.UNKNOWN)

    def begin(self, topology: Topology, chance: random.Random) -> None:
        self.seconds = chance.uniform(0.1, 2.0)
        name = self.claim_one(topology, topology.cells, chance)
        self._cluster = topology.cluster(name)
        _await_append(topology.database_url(topology.cells.index(name)))
        self._cluster.kill9()

    def end(self, topology: Topology) -> None:
        self._cluster.start()
        self.release(topology)


def _await_append(url: str) -> None:
    """Wait until a publish was probably acknowledged, or some time has passed."""
    late = time.monotonic() + APPEND_WITHIN
    with psycopg.connect(url, autocommit=True) as connection:
        ends = "select pid, max(next_offset) from lakelog.head group by pid order by pid"
        before = connection.execute(ends).fetchall()
        while connection.execute(ends).fetchall() == before and time.monotonic() < late:
            time.sleep(0.002)
    time.sleep(TOLD_AFTER)


class PostgresStopped(BaseFault):
    """All processes of a cluster are stopped for longer than the leases, and then resumed."""

    kind = "postgres stopped and back"
    counts_by = Evidence.by(Symptom.UNKNOWN, after=5.0)

    def begin(self, topology: Topology, chance: random.Random) -> None:
        self.seconds = chance.uniform(3.5, 5.0)
        self._cluster = topology.cluster(self.claim_one(topology, topology.cells, chance))
        self._cluster.pause()

    def end(self, topology: Topology) -> None:
        self._cluster.resume()
        self.release(topology)


# The effect that strace gives to its calls: to the next ones, or to all.
DISKS = {
    "fdatasync: EIO": "inject=fdatasync:error=EIO:when=1",
    "fdatasync: ENOSPC": "inject=fdatasync:error=ENOSPC:when=1",
    "pwrite64: EIO": "inject=pwrite64:error=EIO:when=1+3",
    "pwrite64: ENOSPC": "inject=pwrite64:error=ENOSPC",
}


class DiskFails(BaseFault):
    """Writes or flushes of the log or of tables fail. A commit may take effect although its caller gets an error.

    A failed flush of the log ends all sessions, and the cluster recovers from the disk.
    """

    kind = "disk fails"
    is_hard = True
    counts_by = Evidence.by(Symptom.UNKNOWN, after=8.0)

    def begin(self, topology: Topology, chance: random.Random) -> None:
        if shutil.which("strace") is None:
            raise Busy("strace is not installed")
        self.seconds = chance.uniform(2.0, 4.0)
        how = chance.choice(list(DISKS))
        self._cluster = _serving(topology, self.claim_one(topology, topology.cells, chance))
        self.about += f", {how}"
        process = self._cluster.process
        pids = [process.pid, *(child.pid for child in process.children())]
        calls = how.partition(":")[0]
        argv = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={calls}", "-e", DISKS[how]]
        argv += [part for pid in pids for part in ("-p", str(pid))]
        self._tracer: Process = topology.supervisor.start(argv, name="strace")

    def end(self, topology: Topology) -> None:
        # Not by SIGKILL, because a traced process must be released.
        if self._tracer.running:
            self._tracer.terminate()
        _await_cluster(self._cluster)
        self.release(topology)


class ConnectionStorm(BaseFault):
    """Other clients take every connection, and the servers' sessions are terminated."""

    kind = "connection storm"
    is_hard = True
    counts_by = Evidence.by(Symptom.UNKNOWN, after=5.0)

    def begin(self, topology: Topology, chance: random.Random) -> None:
        self.seconds = chance.uniform(2.0, 4.0)
        name = self.claim_one(topology, topology.cells, chance)
        cluster = _serving(topology, name)
        self._taken: list[psycopg.Connection[tuple[object, ...]]] = []
        self._take(cluster)
        if not self._taken:
            raise Busy(f"{name} takes no connection")
        self._taken[0].execute(TERMINATE, (topology.databases[topology.cells.index(name)],))
        for _ in range(3):
            self._take(cluster)
        self.about += f", {len(self._taken)} connections"

    def _take(self, cluster: Cluster) -> None:
        """Take connections until none are left."""
        with contextlib.suppress(psycopg.OperationalError):
            while True:
                self._taken.append(psycopg.connect(cluster.url(), autocommit=True, connect_timeout=2))

    def end(self, topology: Topology) -> None:
        for connection in self._taken:
            connection.close()
        self.release(topology)


def _serving(topology: Topology, name: str) -> Cluster:
    """Return the cluster of a cell after it has recovered from the previous fault."""
    cluster = topology.cluster(name)
    _await_cluster(cluster)
    return cluster


def _await_cluster(cluster: Cluster) -> None:
    """Wait until the cluster serves. Start it if it has ended."""
    if not cluster.running:
        cluster.start()
    try:
        eventually(cluster._answers, within=60, every=0.1, what="the cluster responds")
    except NeverTrue as exc:
        raise Busy("the cluster does not come back") from exc


class HeldSnapshot(BaseFault):
    """An open transaction holds a snapshot, so nothing can be vacuumed."""

    kind = "held xmin"
    # It must have no effect, and therefore never counts.
    counts_by = Evidence.by()

    def begin(self, topology: Topology, chance: random.Random) -> None:
        self.seconds = chance.uniform(8.0, 15.0)
        number = chance.randrange(len(topology.clusters))
        self.about = topology.cells[number]
        self._connection: psycopg.Connection[tuple[object, ...]] | None = None
        try:
            self._connection = psycopg.connect(topology.database_url(number), connect_timeout=5)
            self._connection.execute("set transaction isolation level repeatable read")
            self._connection.execute("select count(*) from pg_class")
        except psycopg.OperationalError:
            # Another fault affects the cluster.
            self.about += ", which was down"

    def end(self, topology: Topology) -> None:
        if self._connection is not None:
            self._connection.close()
