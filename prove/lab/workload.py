"""The workload of a run: topics, groups and their rules, and the client processes with their plans.

`orders` is the main topic, read by a lease group, a second one with a filter that keeps a fifth, a cursor group, a tail
reader and a replay. Its leases are longer than most faults. Otherwise most of the run would be redeliveries after lost
owners, which happen one at a time. `jobs` has short leases, messages that kill their worker, and an operator who
redrives dead letters. `short` keeps only its newest messages, and its group is too slow for that. `passing` is deleted
and recreated continually.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from msgspec import structs

from lakelog.model.group import Exponential, Order, RetryPolicy
from prove.checker.invariant import GroupRules
from prove.history.tables import text_id
from prove.lab.load import plan as plans
from prove.lab.sizes import RunSize

if TYPE_CHECKING:
    from prove.lab.topology import Topology

ORDERS, JOBS, SHORT, PASSING = "orders", "jobs", "short", "passing"
CURSOR_GROUP = "indexing"
KEPT = 600
"""The number of messages that each partition of `short` keeps."""
MOST_PARTITIONS = 12
ODD = 0.0003
"""The share of unusual messages. A third of them has the maximum length, which is much for a small machine."""
DRIVERS = 2
"""The largest number of tiering drivers. Each has its own link to each server."""


@dataclass(frozen=True, kw_only=True)
class LeaseGroup:
    """A group and its settings."""

    topic: str
    name: str
    retries: RetryPolicy
    lease_ms: int
    max_messages: int
    """The number of messages per consume of a worker."""
    order: Order = Order.KEY
    filter: str | None = None
    workers: int = 3
    more: Mapping[str, Any] = field(default_factory=dict)
    """More fields of a worker's plan."""

    @property
    def settings(self) -> dict[str, Any]:
        chosen = {"filter": self.filter} if self.filter else {}
        return {"start_from": "earliest", "order": self.order.value, "retries": structs.asdict(self.retries), **chosen}


_QUICK = Exponential(max=2, base_seconds=0.2, max_seconds=1.0)


def lease_groups(size: RunSize) -> tuple[LeaseGroup, ...]:
    return (
        LeaseGroup(
            topic=ORDERS,
            name="billing",
            retries=_QUICK,
            lease_ms=size.lease_ms,
            max_messages=size.max_messages,
            workers=size.workers,
        ),
        LeaseGroup(
            topic=ORDERS,
            name="mailing",
            retries=_QUICK,
            lease_ms=size.lease_ms,
            max_messages=size.max_messages,
            order=Order.NONE,
            filter="key like '%1' or key like '%2'",
            workers=size.workers,
        ),
        LeaseGroup(
            topic=JOBS,
            name="jobs",
            retries=Exponential(max=1, base_seconds=0.1, max_seconds=0.5),
            lease_ms=2000,
            max_messages=10,
            workers=3,
        ),
        LeaseGroup(
            topic=SHORT,
            name="lagging",
            retries=_QUICK,
            lease_ms=5000,
            max_messages=40,
            workers=1,
            more={"pause": 3.0, "pause_with": "shortener"},
        ),
    )


class Workload:
    """Creates topics and starts clients."""

    def __init__(self, topology: Topology, size: RunSize, seed: int) -> None:
        self._topology, self._size, self._seed = topology, size, seed
        self.groups = lease_groups(size)
        self.partitions = {ORDERS: size.partitions, JOBS: 2, SHORT: 2}
        self._drivers: dict[str, int] = {}

    @property
    def rules(self) -> dict[tuple[int, int], GroupRules]:
        return {
            (text_id(group.topic), text_id(group.name)): GroupRules(retries=group.retries, order=group.order)
            for group in self.groups
        }

    @property
    def publishing(self) -> tuple[str, ...]:
        return ("producer", "numbered", "jobber", "shortener", "operator", "recreator")

    @property
    def all_groups(self) -> list[tuple[str, str]]:
        """Return the topic and the name of all groups, including the cursor group."""
        return [*((group.topic, group.name) for group in self.groups), (ORDERS, CURSOR_GROUP)]

    def make_topics(self) -> None:
        for topic, partitions in self.partitions.items():
            settings: dict[str, Any] = {"retention": {"max_count": KEPT}} if topic == SHORT else {}
            self._topology.request("POST", "/v1/topics", {"name": topic, "partitions": partitions, **settings})

    def start(self) -> None:
        size, clients = self._size, self._topology.clients
        main = size.rate * 0.92
        self._start_drivers(size.drivers, within=min(120.0, 2 * size.load_seconds))
        half = max(1, size.producers // 2)
        clients.start_role(
            "producer",
            "producer",
            half,
            self._producer("producer", ORDERS, main / 2 / half, odd=ODD if size.is_hard else 0),
        )
        clients.start_role(
            "numbered", "producer", half, self._producer("numbered", ORDERS, main / 2 / half, numbered=True)
        )
        small = {"batch": max(10, size.batch // 4)}
        clients.start_role(
            "jobber", "producer", 1, self._producer("jobber", JOBS, size.rate * 0.04, kill=0.001, **small)
        )
        clients.start_role(
            "shortener", "producer", 1, self._producer("shortener", SHORT, max(80.0, size.rate * 0.04), **small)
        )
        for group in self.groups:
            clients.start_role(group.name, "worker", group.workers, self._worker(group))
        clients.start_role(CURSOR_GROUP, "member", size.members, self._member(CURSOR_GROUP))
        clients.start_role("tail", "reader", 1, self._reader("tail", replay=False))
        clients.start_role("replay", "reader", 1, self._reader("replay", replay=True))
        clients.start_role("sampler", "sampler", 1, self._sampler)
        if size.is_hard:
            clients.start_role("operator", "operator", 1, self._operator)
            clients.start_role("recreator", "topic_recreator", 1, self._recreator)
        clients.start_role("tenant", "other_tenant", 1, self._tenant)

    def _start_drivers(self, count: int, *, within: float) -> None:
        """Start tiering drivers before all other clients, because a starting JVM slows everything down like a fault."""
        for driver in self._topology.clients.start_role("driver", "tiering_driver", count, self._driver):
            driver.started.wait(10.0)
            self._topology.clients.await_busy(driver, within=within)

    def churn(self) -> None:
        """Start members that join and leave, until their role ends."""
        make = self._member("churn", members=self._size.churners, churn=True)
        self._topology.clients.start_role("churn", "member", 1, make)

    def add_partition(self) -> str:
        """Add a partition to `orders`, unless it has many. Return what was done."""
        count = self.partitions[ORDERS]
        if count >= MOST_PARTITIONS:
            return "none: there are many"
        for server in range(len(self._topology.servers)):
            try:
                body = {"partitions": count + 1}
                self._topology.request("PATCH", f"/v1/topics/{ORDERS}", body, server=server, timeout=5)
                self.partitions[ORDERS] = count + 1
                return f"{count + 1} of {ORDERS}"
            except (OSError, RuntimeError):
                continue
        return "none: no server accepted it"

    # Plans ------------------------------------------------------------------------------------------------------------

    def _common(self, role: str, name: str, slot: int) -> dict[str, Any]:
        return {
            "name": name,
            "role": role,
            "slot": slot,
            "folder": str(self._topology.folder),
            "ports": self._topology.client_ports,
            "seed": self._seed * 100_000 + slot,
        }

    def _producer(self, role: str, topic: str, rate: float, **more: Any) -> Any:
        def make(name: str, slot: int, after: str) -> plans.ClientPlan:
            given = {"batch": self._size.batch, **more}
            count = self.partitions[topic]
            common = self._common(role, name, slot)
            return plans.ProducerPlan(topic=topic, rate=rate, partitions=count, after=after, **common, **given)

        return make

    def _worker(self, group: LeaseGroup) -> Any:
        def make(name: str, slot: int, after: str) -> plans.ClientPlan:
            common = self._common(group.name, name, slot)
            return plans.WorkerPlan(
                topic=group.topic,
                group=group.name,
                settings=group.settings,
                lease_ms=group.lease_ms,
                max_messages=group.max_messages,
                **common,
                **group.more,
            )

        return make

    def _member(self, role: str, **more: Any) -> Any:
        def make(name: str, slot: int, after: str) -> plans.ClientPlan:
            return plans.MemberPlan(topic=ORDERS, group=CURSOR_GROUP, **self._common(role, name, slot), **more)

        return make

    def _reader(self, role: str, *, replay: bool) -> Any:
        def make(name: str, slot: int, after: str) -> plans.ClientPlan:
            return plans.ReaderPlan(topic=ORDERS, replay=replay, **self._common(role, name, slot))

        return make

    def _driver(self, name: str, slot: int, after: str) -> plans.ClientPlan:
        # A replacement uses the same links.
        number = self._drivers[name] = self._drivers.get(after, len(self._drivers) % DRIVERS)
        common = {**self._common("driver", name, slot), "ports": self._topology.driver_ports(number)}
        environment = self._topology.store_environment
        # `short` is cut faster than it could be tiered.
        return plans.TieringPlan(
            topics=[ORDERS, JOBS],
            environment=environment,
            every=self._size.tier_every,
            min_age=self._size.tier_age,
            after=after,
            **common,
        )

    def _operator(self, name: str, slot: int, after: str) -> plans.ClientPlan:
        return plans.OperatorPlan(topic=JOBS, group=JOBS, **self._common("operator", name, slot))

    def _recreator(self, name: str, slot: int, after: str) -> plans.ClientPlan:
        return plans.TopicRecreatorPlan(topic=PASSING, group=PASSING, **self._common("recreator", name, slot))

    def _tenant(self, name: str, slot: int, after: str) -> plans.ClientPlan:
        mine = (self.groups[0].topic, self.groups[0].name)
        others = [(group, topic) for topic, group in self.all_groups if (topic, group) != mine]
        # Messages begin with the names of their producers.
        words = [f"{maker}-" for maker in self.publishing]
        words += [group for group, _ in others if group not in self.partitions]
        return plans.OtherTenantPlan(
            token=self._topology.tenant_token,
            topic=mine[0],
            group=mine[1],
            others=others,
            words=words,
            **self._common("tenant", name, slot),
        )

    def _sampler(self, name: str, slot: int, after: str) -> plans.ClientPlan:
        return plans.SamplerPlan(groups=self.all_groups, **self._common("sampler", name, slot))
