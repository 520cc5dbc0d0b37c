"""A producer: sends batches in order at its rate, and repeats batches of unknown outcome at another server.

A repeat has the same identity. Before each call the producer saves the batch, so that another process can repeat it
after a kill.
"""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from lakelog.errors import LakelogError
from lakelog.wire.problems import error_of
from prove.history.calls import REFUSALS, PublishCall
from prove.history.recorder import Attempt, HistoryRecorder, PublishedAt
from prove.lab.load.calls import CallReply, HttpCaller
from prove.lab.load.messages import LoadMessage, make
from prove.lab.load.plan import LoadClient, ProducerPlan
from prove.lab.shared_progress import ProgressField

ROOM = 100_000
"""The history numbers messages, and the log numbers calls. Message i of call n has the number n * ROOM + i."""


class PendingBatch(msgspec.Struct, kw_only=True):
    """The saved state of a producer: the current batch, and the next number and sequences."""

    maker: str
    producer: str
    first: int = 0
    count: int = 0
    partition: int = -1
    epoch: int = 0
    port: int = 0
    """Port of the last server that was called."""
    sequences: dict[int, int] = {}
    """The next sequence number, by partition."""


class LoadProducer:
    """Sends one batch at a time."""

    def __init__(self, plan: ProducerPlan) -> None:
        self._plan = plan
        self._client = LoadClient(plan)
        self._recorder = HistoryRecorder(Path(plan.folder) / "history", plan.name)
        self._caller = HttpCaller(plan.ports, plan.timeout, self._recorder, first=plan.slot)
        self._partitions = plan.partitions
        self._state = PendingBatch(maker=plan.name, producer=uuid.uuid4().hex)
        self._turn = plan.slot

    def run(self) -> None:
        if self._plan.after:
            self._take_over()
        began, sent = time.monotonic(), 0
        while not self._client.stopped:
            self._next()
            self._send()
            sent += self._plan.batch
            late = time.monotonic() - began - sent / self._plan.rate
            if late > 1:
                # Catch up only a little after a fault: a higher rate would overload the machine.
                began += late - 1
            self._client.rest(max(0.0, -late))
            if self._client.throttle_level:
                self._client.rest(3 * self._plan.batch / self._plan.rate)
            while self._client.throttle_level > 1 and not self._client.stopped:
                self._client.rest(0.1)
        self._caller.close()
        self._recorder.close()

    def _take_over(self) -> None:
        """Repeat the last batch of the killed producer at another server, because its outcome is unknown."""
        path = self._pending(self._plan.after)
        if not path.exists():
            return
        state = msgspec.json.decode(path.read_bytes(), type=PendingBatch)
        if state.count:
            self._state = state
            self._caller.avoid(state.port)
            self._send()

    def _next(self) -> None:
        state = self._state
        state.first += state.count
        state.count = self._plan.batch
        if self._plan.numbered:
            self._turn += 1
            state.partition = self._turn % self._partitions

    def _send(self) -> None:
        state, plan = self._state, self._plan
        partition = state.partition if plan.numbered else None
        made = [make(plan, state.maker, state.first + number, partition) for number in range(state.count)]
        while not self._tried(made):
            if self._client.stopped:
                return
        if plan.numbered:
            state.sequences[state.partition] = state.sequences.get(state.partition, 0) + 1

    def _tried(self, made: Sequence[LoadMessage]) -> bool:
        """Return whether the batch needs no further attempt."""
        self._caller.settle()
        self._state.port = self._caller.choose()
        self._pending(self._plan.name).write_bytes(msgspec.json.encode(self._state))
        with self._recorder.publish(*self._attempts(made)) as call:
            self._client.put(ProgressField.BUSY, 1)
            reply = self._caller.call("POST", f"/v1/topics/{self._plan.topic}/messages", self._body(made))
            self._client.put(ProgressField.BUSY, 0)
            if reply.outcome == "ok":
                return self._each(call, reply.data["results"])
            return self._whole(call, reply)

    def _whole(self, call: PublishCall, reply: CallReply) -> bool:
        if reply.outcome == "info":
            self._client.count(ProgressField.UNKNOWN)
            call.info(reply.reason)
            return False
        self._client.count(ProgressField.REFUSED)
        call.failed(error_of(reply.data))
        if reply.code == "epoch_changed":
            self._ask_epoch()
            return False
        raise RuntimeError(f"a publish was refused: {reply.reason}")

    def _each(self, call: PublishCall, results: list[dict[str, Any]]) -> bool:
        found = [_result(each) for each in results]
        call.each(found)
        refused = next((each for each in found if isinstance(each, REFUSALS)), None)
        if refused is not None and refused.code == "epoch_changed":
            self._client.count(ProgressField.REFUSED)
            self._ask_epoch()
            return False
        if refused is not None:
            raise RuntimeError(f"a message was refused: {refused!r}")
        placed = [each for each in found if isinstance(each, PublishedAt)]
        if len(placed) < len(found):
            self._client.count(ProgressField.UNKNOWN)
            self._caller.elsewhere()
            return False
        self._client.count(ProgressField.PUBLISHED, len(placed))
        return True

    def _ask_epoch(self) -> None:
        reply = self._caller.call("GET", f"/v1/topics/{self._plan.topic}")
        if reply.outcome == "ok":
            self._state.epoch, self._partitions = reply.data["epoch"], reply.data["partitions"]

    def _attempts(self, made: Sequence[LoadMessage]) -> list[Attempt]:
        state, topic = self._state, self._plan.topic
        if not self._plan.numbered:
            return [Attempt(topic=topic, value=each.value, key=each.key, idempotency_key=each.unique) for each in made]
        first = state.sequences.get(state.partition, 0) * ROOM
        return [
            Attempt(
                topic=topic,
                value=each.value,
                key=each.key,
                partition=state.partition,
                producer=f"{state.producer}/{state.partition}",
                sequence=first + number,
            )
            for number, each in enumerate(made)
        ]

    def _body(self, made: Sequence[LoadMessage]) -> dict[str, Any]:
        state = self._state
        if not self._plan.numbered:
            messages = [{**each.body, "idempotency_key": each.unique} for each in made]
            return {"messages": messages}
        return {
            "producer": state.producer,
            "sequence": state.sequences.get(state.partition, 0),
            "epoch": state.epoch,
            "messages": [{**each.body, "partition": state.partition} for each in made],
        }

    def _pending(self, name: str) -> Path:
        return Path(self._plan.folder) / "pending" / name


def _result(told: dict[str, Any]) -> PublishedAt | LakelogError:
    if "error" in told:
        return error_of(told["error"])
    return PublishedAt(partition=told["partition"], offset=told["offset"], duplicate=told.get("duplicate", False))


def main(plan: bytes) -> None:
    LoadProducer(msgspec.json.decode(plan, type=ProducerPlan)).run()


if __name__ == "__main__":
    main(sys.argv[1].encode())
