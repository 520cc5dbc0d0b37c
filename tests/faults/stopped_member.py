"""A member that is stopped while it holds leases, and resumes late: `python -m tests.faults.stopped_member '{…}'`.

It joins a lease group and a cursor group, leases messages, creates a file to report that, and waits for the file that
resumes it. Then it answers for its messages as if nothing had happened, and writes down the responses.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from prove.history.lease_lines import OwnerAnswer, SeenLease
from prove.history.recorder import HistoryRecorder
from tests.kit.lease_owner import HttpOwner


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the member."""

    topic: str
    group: str
    cursor_group: str
    ports: list[int]
    name: str
    folder: str
    ready: str
    wake: str
    told: str
    lease_ms: int
    session_ms: int
    settings: dict[str, Any]


class StoppedMember:
    """One owner that is a member of both groups."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        recorder = HistoryRecorder(Path(plan.folder), plan.name)
        self._owner = HttpOwner(recorder, plan.ports, plan.topic, plan.group, settings=plan.settings)

    def run(self) -> None:
        plan = self._plan
        generation = self._join(plan.group, "lease")
        cursor = self._join(plan.cursor_group, "cursor")
        commit = {"topic": plan.topic, "member_id": plan.name, "generation": cursor}
        first = self._commit({**commit, "positions": [{"partition": 0, "offset": 1}]})
        assert first[0] == "ok", first
        leases = self._owner.consume(8, plan.lease_ms, member_id=plan.name, generation=generation)
        Path(plan.ready).touch()
        while not Path(plan.wake).exists():
            time.sleep(0.01)
        told = {f"{verb} {how}": outcome for lease in leases for verb, how, outcome in self._answer(lease, generation)}
        for partition in range(2):
            late = self._commit({**commit, "positions": [{"partition": partition, "offset": 3}]})
            told[f"commit {partition}"] = late[0]
        Path(plan.told).write_text(json.dumps(told))
        self._owner.close()

    def _answer(self, lease: SeenLease, generation: int) -> list[tuple[str, str, str]]:
        """Send every kind of answer, with and without the old generation."""
        offsets = tuple(message.offset for message in lease.messages)
        found: list[tuple[str, str, str]] = []
        verbs: tuple[Any, ...] = ("extend", "ack", "nack", "release", "fail", "discard")
        for verb in verbs:
            saying = OwnerAnswer(verb=verb, partition=lease.partition, token=lease.token, offsets=offsets)
            how = f"of token {lease.token} in partition {lease.partition}"
            found.append((verb, how, self._owner.say(saying)[0]))
            found.append((verb, f"{how}, by its own route", self._owner.say_one(saying)))
            found.append((verb, f"{how}, old generation", self._owner.say(saying, generation=generation)[0]))
        return found

    def _join(self, group: str, kind: str) -> int:
        plan = self._plan
        body = {
            "topics": [plan.topic],
            "member_id": plan.name,
            "session_timeout_ms": plan.session_ms,
            "kind": kind,
            "start_from": "earliest",
        }
        outcome, data, reason = self._owner.call("POST", f"/v1/groups/{group}/join", body)
        assert outcome == "ok", reason
        return int(data["generation"])

    def _commit(self, body: dict[str, Any]) -> tuple[str, str]:
        outcome, _, reason = self._owner.call("POST", f"/v1/groups/{self._plan.cursor_group}/positions", body)
        return outcome, reason


if __name__ == "__main__":
    StoppedMember(msgspec.json.decode(sys.argv[1], type=Plan)).run()
