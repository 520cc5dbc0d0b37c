"""The clients of a run: producers of small messages in batches, workers of a lease group, and readers of the tail."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from prove.failover.record import FailoverRecord, number_of, parse
from prove.lab.load.calls import HttpCaller

TOPIC = "orders"
GROUP = "billing"
BATCH = 500
MOST_LAG = 100_000
"""The number of messages by which producers may be ahead of the workers before they slow down."""
_BRAKE_SECONDS = 1.0
_TIMEOUT_SECONDS = 60.0
"""Longer than any call takes: a server must not acknowledge a call after its client has left."""


class FailoverLoad:
    """All clients of one run, each in a thread."""

    def __init__(self, ports: Sequence[int], record: FailoverRecord, *, producers: int, workers: int) -> None:
        self._ports = ports
        self._record = record
        self._stops = {"producer": threading.Event(), "consumer": threading.Event()}
        self.failures: list[str] = []
        work: list[tuple[str, Callable[[HttpCaller, int], None], int]] = [
            *(("producer", self._produce, number) for number in range(producers)),
            *(("consumer", self._consume, number) for number in range(workers)),
            *(("consumer", self._read, number) for number in range(record.partitions)),
        ]
        self._threads = [
            (role, threading.Thread(target=self._run, args=(call, place, number), daemon=True))
            for place, (role, call, number) in enumerate(work)
        ]

    def start(self) -> None:
        for _, thread in self._threads:
            thread.start()

    def stop(self, role: str) -> None:
        """Stop all producers or all consumers, and wait for them."""
        self._stops[role].set()
        for each, thread in self._threads:
            if each == role:
                thread.join(2 * _TIMEOUT_SECONDS)

    def _run(self, call: Callable[[HttpCaller, int], None], place: int, number: int) -> None:
        caller = HttpCaller(self._ports, _TIMEOUT_SECONDS, first=place)
        try:
            call(caller, number)
        except Exception as error:
            self.failures.append(f"a client failed: {error!r}")
            raise
        finally:
            caller.close()

    def _produce(self, caller: HttpCaller, producer: int) -> None:
        record, index, turn = self._record, 0, producer
        while not self._stops["producer"].is_set():
            if len(record.acked) > record.delivered + MOST_LAG:
                # Not until the workers are back: the time until a publish succeeds is measured.
                time.sleep(_BRAKE_SECONDS)
            partition = turn % record.partitions
            turn += 1
            numbers = [number_of(producer, index + each) for each in range(BATCH)]
            messages = [{"value": f"{producer}-{index + each}", "partition": partition} for each in range(BATCH)]
            index += BATCH
            caller.settle()
            began = time.monotonic()
            reply = caller.call("POST", f"/v1/topics/{TOPIC}/messages", {"messages": messages})
            results = reply.data["results"] if reply.outcome == "ok" else []
            placed = [
                (number, each["partition"], each["offset"])
                for number, each in zip(numbers, results, strict=False)
                if "error" not in each
            ]
            if placed:
                record.published(began, time.monotonic(), placed)
            if len(placed) < BATCH:
                # Not repeated: a message of unknown outcome may be in the log or not.
                record.not_published(BATCH - len(placed))
                caller.elsewhere()

    def _consume(self, caller: HttpCaller, worker: int) -> None:
        owner = f"worker-{worker}"
        ask: dict[str, Any] = {
            "topic": TOPIC,
            "group": GROUP,
            "owner": owner,
            "max_messages": 1000,
            "lease_ms": 10_000,
            "wait_ms": 500,
        }
        ask |= {"start_from": "earliest", "order": "none"}
        number, repeat = 0, ""
        while not self._stops["consumer"].is_set():
            caller.settle()
            reply = caller.call("POST", f"/v1/consume{repeat}", {**ask, "request_id": f"{owner}-{number}"}, more=1.0)
            if reply.outcome == "fail":
                raise RuntimeError(f"a consume was refused: {reply.reason}")
            # A repeat gets the leases of a lost response.
            repeat = "" if reply.outcome == "ok" and "leases" in reply.data else "?repeat=true"
            if repeat:
                continue
            number += 1
            answers = []
            for lease in reply.data["leases"]:
                partition = lease["partition"]
                seen = [(partition, each["offset"], parse(each["value"])) for each in lease["messages"]]
                self._record.saw(seen, is_worker=True)
                offsets = [offset for _, offset, _ in seen]
                answers.append({"verb": "ack", "partition": partition, "token": lease["token"], "offsets": offsets})
            self._answer(caller, owner, answers)

    def _answer(self, caller: HttpCaller, owner: str, answers: list[dict[str, Any]]) -> None:
        for _ in range(5 if answers else 0):
            caller.settle()
            path = f"/v1/topics/{TOPIC}/groups/{GROUP}/answers"
            if caller.call("POST", path, {"owner": owner, "answers": answers}).outcome != "info":
                return

    def _read(self, caller: HttpCaller, partition: int) -> None:
        offset = 0
        while not self._stops["consumer"].is_set():
            caller.settle()
            path = f"/v1/topics/{TOPIC}/partitions/{partition}/messages?offset={offset}&limit=2000&wait_ms=500"
            reply = caller.call("GET", path, more=1.0)
            if reply.outcome == "ok":
                messages = reply.data["messages"]
                seen = [(partition, each["offset"], parse(each["value"])) for each in messages]
                self._record.saw(seen, is_worker=False)
                offset = reply.data["next_offset"]
                time.sleep(0.1)
            elif reply.code == "offset_out_of_range":
                self._record.was_refused()
                described = caller.call("GET", f"/v1/topics/{TOPIC}")
                if described.outcome == "ok":
                    offset = min(offset, described.data["partition_list"][partition]["high_watermark"])


def read_log(caller: HttpCaller, partition: int, end: int) -> list[int]:
    """Return the numbers of all messages of a partition."""
    found: list[int] = []
    while len(found) < end:
        path = f"/v1/topics/{TOPIC}/partitions/{partition}/messages?offset={len(found)}&limit=5000"
        reply = caller.call("GET", path)
        if reply.outcome != "ok":
            raise RuntimeError(f"the log cannot be read: {reply.reason}")
        for each in reply.data["messages"]:
            if each["offset"] != len(found):
                raise RuntimeError(f"offset {len(found)} of partition {partition} is missing")
            found.append(parse(each["value"]))
    return found
