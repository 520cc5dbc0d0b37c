"""The workload of a soak: one topic with retention, three lease groups, two cursor groups, and tiering."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from lakelog.model.group import Exponential, Order
from prove.lab.load import plan as plans
from prove.lab.sizes import RunSize
from prove.lab.workload import ORDERS, LeaseGroup, Workload

if TYPE_CHECKING:
    from prove.lab.topology import Topology

LEASE_GROUPS = {"billing": Order.KEY, "shipping": Order.KEY, "mailing": Order.NONE}
CURSOR_GROUPS = ("indexing", "archiving")
_CALM = {"work": 0.005, "steal": 0.0, "nack": 0.001, "release": 0.001, "extend": 0.01}
_RETRIES = Exponential(max=3, base_seconds=0.2, max_seconds=1.0)


class SoakWorkload(Workload):
    """A workload that keeps nothing for long: no dead letters, and no idempotency keys."""

    def __init__(self, topology: Topology, size: RunSize, seed: int, *, keep_seconds: float) -> None:
        super().__init__(topology, size, seed)
        self._keep_seconds = keep_seconds
        self.partitions = {ORDERS: size.partitions}
        self.groups = tuple(
            LeaseGroup(
                topic=ORDERS,
                name=name,
                retries=_RETRIES,
                lease_ms=size.lease_ms,
                max_messages=size.max_messages,
                order=order,
                workers=size.workers,
                more=_CALM,
            )
            for name, order in LEASE_GROUPS.items()
        )

    @property
    def all_groups(self) -> list[tuple[str, str]]:
        return [(ORDERS, name) for name in (*LEASE_GROUPS, *CURSOR_GROUPS)]

    def make_topics(self) -> None:
        retention = {"max_age_ms": round(1000 * self._keep_seconds)}
        body = {"name": ORDERS, "partitions": self.partitions[ORDERS], "retention": retention}
        self._topology.request("POST", "/v1/topics", body)

    def start(self) -> None:
        """Start all clients except producers."""
        clients, size = self._topology.clients, self._size
        self._start_drivers(1, within=120.0)
        for group in self.groups:
            clients.start_role(group.name, "worker", group.workers, self._worker(group))
        for name in CURSOR_GROUPS:
            clients.start_role(name, "member", size.members, self._cursor(name))

    def publish(self, role: str, rate: float) -> None:
        """Start producers of that role with this total rate in messages per second."""
        size = self._size
        calm = {"numbered": True, "bad": 0.0, "discard": 0.001}
        make = self._producer(role, ORDERS, rate / size.producers, **calm)
        self._topology.clients.start_role(role, "producer", size.producers, make)

    def _driver(self, name: str, slot: int, after: str) -> plans.ClientPlan:
        """Return the plan of a tiering driver.

        It tiers well before retention, so that young messages are read from tables and older messages from files.
        """
        age = self._keep_seconds / 4
        usual = super()._driver(name, slot, after)
        return replace(usual, topics=[ORDERS], segment_bytes=1 << 20, min_age=age, every=age / 4)

    def _cursor(self, group: str) -> Any:
        def make(name: str, slot: int, after: str) -> plans.ClientPlan:
            return plans.MemberPlan(topic=ORDERS, group=group, **self._common(group, name, slot))

        return make
