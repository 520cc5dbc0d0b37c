"""A worker process of the fault scenarios: leases messages by plain HTTP, works for a moment, answers for each.

Run as `python -m tests.faults.lease_worker '{…}'`. A message whose value begins with `bad` always fails. If it does not
know an outcome, it repeats the call at the other server until it does. It ends when the stop file exists.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from prove.history.lease_lines import OwnerAnswer, SeenLease
from prove.history.recorder import HistoryRecorder
from tests.kit.lease_owner import HttpOwner, Unknown


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one worker."""

    topic: str
    group: str
    ports: list[int]
    name: str
    folder: str
    stop: str
    seed: int
    settings: dict[str, Any]
    lease_ms: int = 5000
    max_messages: int = 10
    nack_share: float = 0.05
    work_ms: float = 2.0


class Worker:
    """One owner that makes one call at a time."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._random = random.Random(plan.seed)
        recorder = HistoryRecorder(Path(plan.folder), plan.name)
        self._owner = HttpOwner(recorder, plan.ports, plan.topic, plan.group, settings=plan.settings)
        self._stop = Path(plan.stop)

    def run(self) -> None:
        number = 0
        while not self._stop.exists():
            number += 1
            for lease in self._lease(f"{self._plan.name}-{number}"):
                self._work(lease)
        self._owner.close()

    def _lease(self, request_id: str) -> list[SeenLease]:
        """Repeat a call of unknown outcome with its id: messages that it was granted must not wait for the end of the
        lease.
        """
        plan = self._plan
        while True:
            try:
                return self._owner.consume(plan.max_messages, plan.lease_ms, wait_ms=500, request_id=request_id)
            except Unknown:
                if self._stop.exists():
                    return []
                time.sleep(0.02)

    def _work(self, lease: SeenLease) -> None:
        sayings = []
        blocked: set[str | None] = set()
        for message in lease.messages:
            time.sleep(self._random.random() * 2 * self._plan.work_ms / 1000)
            if message.key is not None and message.key in blocked:
                # It was returned with the message before it, or will be.
                continue
            fails = message.value.startswith(b"bad") or self._random.random() < self._plan.nack_share
            if fails:
                blocked.add(message.key)
            verb = "nack" if fails else "ack"
            sayings.append(
                OwnerAnswer(verb=verb, partition=lease.partition, token=lease.token, offsets=(message.offset,))  # type: ignore[arg-type]
            )
        if self._random.random() < 0.2:
            for saying in sayings:
                while self._owner.say_one(saying) == "info" and not self._stop.exists():
                    time.sleep(0.02)
        else:
            self._say_all(sayings)

    def _say_all(self, sayings: list[OwnerAnswer]) -> None:
        while sayings and not self._stop.exists():
            outcomes = self._owner.say(*sayings)
            sayings = [saying for saying, outcome in zip(sayings, outcomes, strict=True) if outcome == "info"]
            if sayings:
                time.sleep(0.02)


if __name__ == "__main__":
    Worker(msgspec.json.decode(sys.argv[1], type=Plan)).run()
