"""The gauges that are read every 10 s: memory of servers, dead tuples, disk, object store, and lags."""

from __future__ import annotations

import contextlib
import http.client
from collections import Counter

import msgspec

from lakelog.errors import LakelogError
from prove.lab.shared_progress import ProgressField
from prove.lab.topology import Topology

MAX_WAL = 256 << 20
"""Maximum WAL of each cell. By default PostgreSQL lets its WAL grow to a gigabyte before it reuses space."""
LARGEST = 5
"""Number of tables to list, by their dead tuples."""


class GaugeReading(msgspec.Struct, frozen=True, kw_only=True):
    """One reading. Sizes are in bytes, for all cells together."""

    at: float
    """Seconds since the start of the soak."""
    memory: dict[str, int]
    """The resident bytes of each server."""
    dead: int
    dead_by_table: dict[str, int]
    database: int
    wal: int
    store: int
    lag: dict[str, int]
    published: int


def take(topology: Topology, at: float) -> GaugeReading:
    dead: Counter[str] = Counter()
    database = wal = 0
    for cluster, name in zip(topology.clusters, topology.databases, strict=True):
        tables = cluster.execute("select relname, n_dead_tup from pg_stat_user_tables", database=name)
        dead.update({table: count for table, count in tables if count})
        statement = "select pg_database_size(current_database()), (select sum(size) from pg_ls_waldir())"
        ((one, other),) = cluster.execute(statement, database=name)
        database, wal = database + one, wal + int(other)
    return GaugeReading(
        at=at,
        memory={server.name: server.process.rss() for server in topology.servers},
        dead=dead.total(),
        dead_by_table=dict(dead.most_common(LARGEST)),
        database=database,
        wal=wal,
        store=_stored(topology),
        lag=lags(topology),
        published=topology.clients.progress.total(ProgressField.PUBLISHED),
    )


def lags(topology: Topology) -> dict[str, int]:
    """Return the lag of each group, bypassing all proxies. A group that cannot be reached is left out."""
    found = {}
    for _, group in topology.workload.all_groups:
        with contextlib.suppress(OSError, RuntimeError, http.client.HTTPException):
            found[group] = int(topology.request("GET", f"/v1/groups/{group}/lag", timeout=5.0)["lag"])
    return found


def finished(topology: Topology) -> int | None:
    """Return the messages that the slowest group has finished; None if a group cannot be reached."""
    done: list[int] = []
    for topic, group in topology.workload.all_groups:
        try:
            told = topology.request("GET", f"/v1/groups/{group}/lag", timeout=5.0)
        except (OSError, RuntimeError, http.client.HTTPException):
            return None
        done.append(sum(int(part["committed"]) for part in told["partitions"] if part["topic"] == topic))
    return min(done)


def _stored(topology: Topology) -> int:
    try:
        return sum(each.bytes for each in topology.store.list())
    except LakelogError:
        return 0
