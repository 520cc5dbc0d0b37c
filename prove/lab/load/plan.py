"""The plans of client processes, as JSON, and the state that all of them share."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import msgspec

from prove.lab.shared_progress import ProgressField, SharedProgress


class ClientPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The base of all plans: the unique name of the process, its folder, and the ports of the servers."""

    name: str
    role: str
    slot: int
    folder: str
    ports: list[int]
    seed: int
    timeout: float = 2.5
    """Timeout of a call: a dead server must not block its clients."""


class ProducerPlan(ClientPlan, frozen=True, kw_only=True):
    topic: str
    rate: float
    batch: int
    partitions: int
    numbered: bool = False
    """True if messages are identified by producer and sequence instead of idempotency keys."""
    bad: float = 0.01
    kill: float = 0.0
    discard: float = 0.005
    odd: float = 0.0
    """Share of messages that are empty, of maximum length, or not text."""
    keys: int = 2000
    after: str = ""
    """The killed producer whose last batch is repeated first."""


class WorkerPlan(ClientPlan, frozen=True, kw_only=True):
    topic: str
    group: str
    settings: dict[str, Any]
    lease_ms: int
    max_messages: int
    nack: float = 0.002
    release: float = 0.002
    extend: float = 0.05
    steal: float = 0.01
    work: float = 0.02
    """The average time in seconds for which the worker holds messages."""
    pause: float = 0.0
    """The longest pause between two calls in seconds. It makes the group lag while producers publish."""
    pause_with: str = ""
    """The worker pauses only while producers of this role run."""


class MemberPlan(ClientPlan, frozen=True, kw_only=True):
    topic: str
    group: str
    members: int = 1
    session_ms: int = 6000
    churn: bool = False
    """True if members join, stay briefly and leave, repeatedly."""
    steal: float = 0.2
    """The share of rounds in which a member tries to commit in a lost partition, which must be refused."""
    commit: bool = True


class ReaderPlan(ClientPlan, frozen=True, kw_only=True):
    topic: str
    replay: bool = False


class SamplerPlan(ClientPlan, frozen=True, kw_only=True):
    groups: list[tuple[str, str]]
    """The topic and the group."""
    every: float = 1.0


class OtherTenantPlan(ClientPlan, frozen=True, kw_only=True):
    token: str
    """Token of the other project."""
    topic: str
    group: str
    others: list[tuple[str, str]]
    """Names of groups and topics of the main project."""
    words: list[str]
    """Words that only the main project uses."""
    every: float = 2.0


class OperatorPlan(ClientPlan, frozen=True, kw_only=True):
    topic: str
    group: str
    every: float = 5.0
    redrives: int = 40
    """The number of dead letters per call."""


class TopicRecreatorPlan(ClientPlan, frozen=True, kw_only=True):
    topic: str
    group: str
    every: float = 2.0
    count: int = 20
    """The number of messages of each topic that is created."""
    lease_ms: int = 10_000


class TieringPlan(ClientPlan, frozen=True, kw_only=True):
    topics: list[str]
    environment: dict[str, str]
    """The settings with which the driver reaches the object store."""
    segment_bytes: int = 256 << 10
    min_age: float
    every: float
    after: str = ""
    """The killed driver that this one replaces."""


class LoadClient:
    """The state of a process: its plan, its random numbers, its shared progress, and whether it has to end."""

    def __init__(self, plan: ClientPlan) -> None:
        self.plan = plan
        self.folder = Path(plan.folder)
        self.dice = random.Random(plan.seed)
        self._progress = SharedProgress(self.folder / "progress")
        self._stop = self.folder / "stop" / plan.role
        self._looked, self._stopped = 0.0, False

    def count(self, field: ProgressField, count: int = 1) -> None:
        self._progress.add(self.plan.slot, field, count)

    def put(self, field: ProgressField, number: int) -> None:
        self._progress.put(self.plan.slot, field, number)

    def is_stopped(self, role: str) -> bool:
        return (self.folder / "stop" / role).exists()

    @property
    def throttle_level(self) -> int:
        return self._progress.throttle_level

    @property
    def stopped(self) -> bool:
        now = time.monotonic()
        if not self._stopped and now - self._looked > 0.05:
            self._looked, self._stopped = now, self._stop.exists()
        return self._stopped

    def rest(self, seconds: float) -> None:
        """Pause, but return early if the process has to end."""
        until = time.monotonic() + seconds
        while not self.stopped and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, 0.1))
