"""A worker of a lease group: performs the action of each message, and answers all of them in one call.

Some messages always fail, some kill the process, some are discarded. Now and then it extends, releases, or tries to
answer as another owner, which must be refused.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from lakelog.model.group import Order
from prove.history.lease_lines import OwnerAnswer, SeenLease, SeenMessage
from prove.history.lines import Said
from prove.history.recorder import HistoryRecorder
from prove.lab.load.calls import HttpCaller
from prove.lab.load.messages import does
from prove.lab.load.owner import LeaseOwner
from prove.lab.load.plan import LoadClient, WorkerPlan
from prove.lab.shared_progress import ProgressField

_VERBS: dict[str, Said] = {"good": "ack", "bad": "nack", "discard": "discard"}


class LoadWorker:
    """One owner that makes one call at a time. It answers all messages before it requests more."""

    def __init__(self, plan: WorkerPlan) -> None:
        self._plan = plan
        self._client = LoadClient(plan)
        recorder = HistoryRecorder(Path(plan.folder) / "history", plan.name)
        caller = HttpCaller(plan.ports, plan.timeout, recorder, first=plan.slot)
        self._owner = LeaseOwner(recorder, caller, plan.topic, plan.group, plan.name)
        self._owner.settings = plan.settings
        self._is_ordered = plan.settings.get("order") != Order.NONE.value
        self._lost: list[OwnerAnswer] = []
        """Late answers, which are repeated later."""

    def run(self) -> None:
        number = 0
        while not self._client.stopped:
            number += 1
            leases = self._lease(f"{self._plan.name}-{number}")
            count = sum(len(lease.messages) for lease in leases)
            self._client.count(ProgressField.DELIVERED, count)
            self._hold(count)
            self._work(leases)
            if not any(lease.suspect for lease in leases):
                # Messages of a lost owner come one at a time, and should not also wait for this group's pauses.
                self._pause()
        self._owner.caller.close()
        self._owner.recorder.close()

    def _lease(self, request_id: str) -> list[SeenLease]:
        """Repeat a call of unknown outcome with its id, so that its leases are not left to expire."""
        plan, repeat = self._plan, False
        while not self._client.stopped:
            leases = self._owner.consume(
                plan.max_messages, plan.lease_ms, wait_ms=500, request_id=request_id, repeat=repeat
            )
            if leases is not None:
                return leases
            self._client.count(ProgressField.UNKNOWN)
            repeat = True
        return []

    def _hold(self, count: int) -> None:
        """Hold the messages for a while, so that faults that need a busy worker can hit this one."""
        if count:
            self._client.put(ProgressField.BUSY, count)
            time.sleep(self._client.dice.random() * 2 * self._plan.work)
            self._client.put(ProgressField.BUSY, 0)

    def _pause(self) -> None:
        if self._plan.pause and not self._client.is_stopped(self._plan.pause_with):
            self._client.rest(self._client.dice.random() * self._plan.pause)

    def _work(self, leases: Sequence[SeenLease]) -> None:
        dice, plan = self._client.dice, self._plan
        for lease in leases:
            if dice.random() < plan.extend:
                saying = OwnerAnswer(
                    verb="extend", partition=lease.partition, token=lease.token, lease_ms=plan.lease_ms
                )
                self._owner.say([saying])
            sayings = self._answers(lease)
            if sayings and dice.random() < plan.steal:
                self._owner.say(sayings[:1], owner=f"{plan.name}-thief")
            self._answer_all(sayings)
        if self._lost and dice.random() < 0.2:
            self._owner.say([self._lost.pop()])

    def _answers(self, lease: SeenLease) -> list[OwnerAnswer]:
        """Process the messages. Consecutive messages with the same verb are answered together, in key order."""
        chosen: list[tuple[Said, list[int]]] = []
        blocked: set[str] = set()
        for message in lease.messages:
            if message.key is not None and message.key in blocked:
                # It was given back with the one before it.
                continue
            verb = self._run(message)
            if verb in ("nack", "release") and message.key is not None and self._is_ordered:
                blocked.add(message.key)
            if not chosen or chosen[-1][0] != verb:
                chosen.append((verb, []))
            chosen[-1][1].append(message.offset)
        return [
            OwnerAnswer(verb=verb, partition=lease.partition, token=lease.token, offsets=tuple(offsets))
            for verb, offsets in chosen
        ]

    def _run(self, message: SeenMessage) -> Said:
        what = does(message.value)
        if what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        drawn = self._client.dice.random()
        if what == "good" and drawn < self._plan.nack:
            return "nack"
        if what == "good" and drawn < self._plan.nack + self._plan.release:
            return "release"
        return _VERBS[what]

    def _answer_all(self, sayings: list[OwnerAnswer]) -> None:
        while sayings and not self._client.stopped:
            told = list(zip(sayings, self._owner.say(sayings), strict=True))
            done = sum(len(saying.offsets) for saying, outcome in told if outcome == "ok" and saying.verb == "ack")
            self._client.count(ProgressField.ACKED, done)
            late = [saying for saying, outcome in told if outcome == "fail"]
            self._client.count(ProgressField.REFUSED, len(late))
            self._lost = [*self._lost, *late][-20:]
            sayings = [saying for saying, outcome in told if outcome == "info"]
            if sayings:
                self._client.count(ProgressField.UNKNOWN)


def main(plan: bytes) -> None:
    LoadWorker(msgspec.json.decode(plan, type=WorkerPlan)).run()


if __name__ == "__main__":
    main(sys.argv[1].encode())
