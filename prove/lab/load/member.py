"""Members of a cursor group: they join, read their partitions, and commit with their generation.

Churning members stay only briefly, and return under the same name.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from lakelog.wire.problems import error_of
from prove.history.calls import MemberCall
from prove.history.recorder import HistoryRecorder
from prove.lab.load.calls import CallReply, HttpCaller
from prove.lab.load.fetcher import RecordingFetcher
from prove.lab.load.plan import LoadClient, MemberPlan
from prove.lab.shared_progress import ProgressField


class LoadMember:
    """One member: one thread, one call at a time."""

    def __init__(self, plan: MemberPlan, client: LoadClient, recorder: HistoryRecorder, number: int) -> None:
        self._plan, self._client, self._recorder = plan, client, recorder
        self._name = f"{plan.name}.{number}"
        self._place = (plan.topic, plan.group)
        self._caller = HttpCaller(plan.ports, plan.timeout, recorder, first=plan.slot + number)
        # The group decides where it continues in a partition that it gets back, so it does not follow a tail.
        self._fetcher = RecordingFetcher(recorder, self._caller, plan.topic, reader="replay", group=plan.group)
        self._generation = 0
        self._owned: dict[int, int] = {}
        """Next offset to read, by partition."""
        self._lost: dict[int, int] = {}
        """Partitions that others own now, with the generation in which this member last owned them."""
        self._beat_at = 0.0

    def run(self) -> None:
        while not self._client.stopped:
            if self._join():
                self._stay()
                self._leave()
        self._caller.close()

    def _stay(self) -> None:
        until = time.monotonic() + (self._client.dice.uniform(0.2, 1.0) if self._plan.churn else 1e9)
        while not self._client.stopped and time.monotonic() < until:
            if not self._beat() or not self._read():
                return

    def _join(self) -> bool:
        body = {
            "member_id": self._name,
            "topics": [self._plan.topic],
            "session_timeout_ms": self._plan.session_ms,
            "kind": "cursor",
            "start_from": "earliest",
        }
        self._caller.settle()
        with self._recorder.join(*self._place, self._name) as call:
            reply = self._caller.call("POST", f"/v1/groups/{self._plan.group}/join", body)
            if reply.outcome != "ok":
                return self._unlucky(call, reply)
            partitions = reply.data["assigned_partitions"].get(self._plan.topic, [])
            call.ok(reply.data["generation"], partitions)
        self._generation, self._owned, self._beat_at = reply.data["generation"], {}, time.monotonic()
        self._own(partitions)
        return True

    def _leave(self) -> None:
        self._caller.settle()
        with self._recorder.leave(*self._place, self._name, self._generation) as call:
            body = {"member_id": self._name}
            reply = self._caller.call("POST", f"/v1/groups/{self._plan.group}/leave", body)
            if reply.outcome == "ok":
                call.ok(self._generation)
            else:
                self._unlucky(call, reply)

    def _beat(self) -> bool:
        """Send a heartbeat. Return False if the reply says that this is no longer a member."""
        if time.monotonic() < self._beat_at + self._plan.session_ms / 12_000:
            return True
        body = {"member_id": self._name, "generation": self._generation}
        self._caller.settle()
        reply = self._caller.call("POST", f"/v1/groups/{self._plan.group}/heartbeat", body)
        if reply.outcome == "info":
            self._client.count(ProgressField.UNKNOWN)
            return True
        if reply.outcome == "fail":
            self._client.count(ProgressField.REFUSED)
            self._recorder.revoked(self._place, self._name, self._generation, list(self._owned))
            self._lost |= dict.fromkeys(self._owned, self._generation)
            return False
        self._beat_at = time.monotonic()
        self._apply_assignment(reply.data)
        return True

    def _apply_assignment(self, told: dict[str, Any]) -> None:
        partitions = told["assigned_partitions"].get(self._plan.topic, [])
        if told["generation"] == self._generation and set(partitions) == set(self._owned):
            return
        before, self._generation = self._generation, told["generation"]
        if gone := [each for each in self._owned if each not in partitions]:
            self._recorder.revoked(self._place, self._name, self._generation, gone)
            self._lost |= dict.fromkeys(gone, before)
            for each in gone:
                del self._owned[each]
        if partitions:
            self._recorder.assigned(self._place, self._name, self._generation, partitions)
        self._own(partitions)

    def _own(self, partitions: Iterable[int]) -> None:
        """Read the group's positions in partitions that are new to this member."""
        new = [each for each in partitions if each not in self._owned]
        if not new:
            return
        known = self._positions()
        self._owned.update({each: known[each] for each in new if each in known})

    def _positions(self) -> dict[int, int]:
        """Return the group's positions; empty if no server responded."""
        reply = self._caller.call("GET", f"/v1/groups/{self._plan.group}/positions?topic={self._plan.topic}")
        return {each["partition"]: each["offset"] for each in reply.data["positions"]} if reply.outcome == "ok" else {}

    def _read(self) -> bool:
        """Read the assigned partitions once. Return False if the member has to join again."""
        idle = True
        for partition in list(self._owned):
            if self._client.stopped:
                return True
            if partition not in self._owned:
                # The last heartbeat took it away.
                continue
            self._client.put(ProgressField.BUSY, 1)
            got = self._fetcher.fetch(partition, self._owned[partition], limit=1000)
            self._client.put(ProgressField.BUSY, 0)
            if got is None:
                self._client.count(ProgressField.UNKNOWN)
                continue
            if got["next_offset"] > self._owned[partition]:
                idle = False
                self._client.count(ProgressField.DELIVERED, len(got["messages"]))
                self._owned[partition] = got["next_offset"]
                if not self._commit(partition):
                    return False
            if not self._beat():
                return False
        if self._lost and self._client.dice.random() < self._plan.steal:
            self._commit_in_lost_partition()
        if idle:
            self._client.rest(0.1)
        return True

    def _commit_in_lost_partition(self) -> None:
        """Commit the group's position in a partition that this member has lost, with the old generation."""
        partition = self._client.dice.choice(list(self._lost))
        if partition in self._owned:
            del self._lost[partition]
            return
        offset = self._positions().get(partition)
        if offset is None:
            return
        reply = self._commit_offset(partition, offset, self._lost[partition])
        if reply.outcome == "fail" and reply.code != "position_refused":
            # Otherwise the group progressed in between, and the response says nothing about the generation.
            del self._lost[partition]

    def _commit(self, partition: int) -> bool:
        reply = self._commit_offset(partition, self._owned[partition], self._generation)
        if reply.outcome == "fail":
            # Get the new assignment at once. A member that the group does not know has to join again.
            self._owned.pop(partition, None)
            self._beat_at = 0.0
            return reply.code != "unknown_member" and self._beat()
        return True

    def _commit_offset(self, partition: int, offset: int, generation: int) -> CallReply:
        """Commit an offset and return the reply."""
        body = {
            "topic": self._plan.topic,
            "positions": [{"partition": partition, "offset": offset}],
            "member_id": self._name,
            "generation": generation,
        }
        self._caller.settle()
        with self._recorder.commit(self._place, self._name, generation, partition) as call:
            reply = self._caller.call("POST", f"/v1/groups/{self._plan.group}/positions", body)
            if reply.outcome == "ok":
                call.ok(generation)
            else:
                self._unlucky(call, reply)
        return reply

    def _unlucky(self, call: MemberCall, reply: CallReply) -> bool:
        if reply.outcome == "info":
            self._client.count(ProgressField.UNKNOWN)
            call.info(reply.reason)
        else:
            self._client.count(ProgressField.REFUSED)
            call.failed(error_of(reply.data))
        return False


def main(plan: bytes) -> None:
    asked = msgspec.json.decode(plan, type=MemberPlan)
    client = LoadClient(asked)
    with HistoryRecorder(Path(asked.folder) / "history", asked.name) as recorder:
        members = [LoadMember(asked, client, recorder, number) for number in range(asked.members)]
        threads = [threading.Thread(target=member.run, name=str(number)) for number, member in enumerate(members)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main(sys.argv[1].encode())
