"""Two PostgreSQL clusters with streaming replication behind two fixed ports, and promotions of the standby."""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from types import TracebackType

from lakelog.storage.postgres import migrate
from tests.kit.postgres import Cluster
from tests.kit.proxy import FaultProxy
from tests.kit.waiting import eventually

_STREAMS = "select count(*) > 0 from pg_stat_replication where state = 'streaming'"
_IS_SYNCHRONOUS = (
    "select count(*) > 0 from pg_stat_replication where sync_state in ('sync', 'quorum') and state = 'streaming'"
)
_SETTLED_SECONDS = 0.5
"""Time until signals have arrived."""
_WITHOUT_STANDBY_SECONDS = 0.5
"""How long an asynchronous standby is away before the primary fails, so that writes are lost."""


def await_checkpointer(primary: Cluster) -> None:
    """Wait until commits wait for the standby.

    The checkpointer tells all sessions, after it has read the configuration. It does that between two checkpoints, and
    not while it flushes files.
    """
    time.sleep(_SETTLED_SECONDS)
    primary.execute("checkpoint")


class ReplicatedPair:
    """A primary and its standby: `with ReplicatedPair(is_synchronous=True) as pair:`.

    `url` names two ports. One leads to the primary, the other to the standby or to the replaced primary.
    """

    def __init__(self, *, is_synchronous: bool) -> None:
        self.is_synchronous = is_synchronous
        self._stack = ExitStack()
        self._settings = {"max_connections": "200"}

    def __enter__(self) -> ReplicatedPair:
        try:
            self.primary = self._stack.enter_context(Cluster(settings=self._settings))
            self._database = self.primary.create_database().rpartition("/")[2]
            asyncio.run(migrate(self.primary.url(self._database)))
            self._links = [self._stack.enter_context(FaultProxy("127.0.0.1", self.primary.port)) for _ in range(2)]
            self._primary_link = 0
            self._add_standby()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()

    @property
    def url(self) -> str:
        """The URL for servers. It stays the same."""
        hosts = ",".join(f"127.0.0.1:{link.port}" for link in self._links)
        return f"postgresql://postgres@{hosts}/{self._database}"

    def promote(self, *, stops: bool) -> float:
        """Kill or stop the primary and promote the standby. Return the time at which it accepts writes.

        Args:
            stops: True to stop the primary and to resume it when the new one serves; False to kill it.
        """
        old, new = self.primary, self.standby
        if self.is_synchronous:
            eventually(lambda: old.execute(_IS_SYNCHRONOUS)[0][0], within=60, what="the standby is synchronous")
        else:
            new.stop()
            time.sleep(_WITHOUT_STANDBY_SECONDS)
        if stops:
            old.pause()
        else:
            old.kill9()
        if not self.is_synchronous:
            new.start()
        new.promote()
        promoted = time.monotonic()
        self.primary, self._primary_link = new, 1 - self._primary_link
        return promoted

    def renew(self, old: Cluster, *, stops: bool) -> None:
        """Resume the old primary for a moment, remove it, and make a new standby of the new primary."""
        if stops:
            # Sessions of servers wake up there, and must not be used.
            old.resume()
            time.sleep(_SETTLED_SECONDS)
        old.close()
        self._add_standby()

    def _add_standby(self) -> None:
        primary = self.primary
        # Before the setting: the standby copies it, and would wait for a standby of its own after its promotion.
        self.standby = self._stack.enter_context(Cluster(settings=self._settings, primary=primary))
        self._links[1 - self._primary_link].upstream = ("127.0.0.1", self.standby.port)
        eventually(lambda: primary.execute(_STREAMS)[0][0], within=60, what="the standby streams")
        if self.is_synchronous:
            primary.execute("alter system set synchronous_standby_names = '*'")
            primary.execute("select pg_reload_conf()")
            eventually(lambda: primary.execute(_IS_SYNCHRONOUS)[0][0], within=60, what="the standby is synchronous")
            await_checkpointer(primary)
