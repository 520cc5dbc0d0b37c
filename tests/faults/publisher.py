"""A client process of the fault scenarios: publishes one message per request, and repeats calls of unknown outcome.

Run as `python -m tests.faults.publisher '{…}'`. It has two threads, each with its own history; a shared board shows the
test the progress of each thread and the server that it waits for.
"""

from __future__ import annotations

import http.client
import json
import mmap
import os
import random
import struct
import sys
import threading
import time
from pathlib import Path

import msgspec

from lakelog.errors import LakelogError, OutcomeUnknown
from lakelog.wire.problems import error_of
from prove.history.recorder import REFUSALS, Attempt, HistoryRecorder, PublishedAt

CELL = struct.Struct("<iI")
THREADS = 2


class Plan(msgspec.Struct, frozen=True):
    """The settings of one client process."""

    topic: str
    ports: list[int]
    calls: int
    seed: int
    name: str
    folder: str
    board: str
    slot: int


class Board:
    """Per thread of all clients: the server it waits for (-1: none), and the number of finished calls."""

    def __init__(self, path: str, slots: int) -> None:
        if not os.path.exists(path):
            Path(path).write_bytes(CELL.pack(-1, 0) * slots)
        self.slots = slots
        with open(path, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), CELL.size * slots)

    def tell(self, slot: int, server: int, done: int) -> None:
        CELL.pack_into(self._map, slot * CELL.size, server, done)

    def in_flight(self, server: int) -> int:
        return sum(1 for slot in range(self.slots) if CELL.unpack_from(self._map, slot * CELL.size)[0] == server)

    def done(self) -> int:
        return sum(CELL.unpack_from(self._map, slot * CELL.size)[1] for slot in range(self.slots))


class Worker:
    """One thread: a third of its calls repeat an earlier message, often at the other server."""

    def __init__(self, plan: Plan, board: Board, number: int) -> None:
        self._plan, self._board = plan, board
        self._slot = plan.slot * THREADS + number
        self._random = random.Random(plan.seed * THREADS + number)
        self._recorder = HistoryRecorder(Path(plan.folder), f"{plan.name}t{number}")
        self._connections: dict[int, http.client.HTTPConnection] = {}
        self._done = 0

    def run(self) -> None:
        earlier: list[Attempt] = []
        with self._recorder:
            for number in range(self._plan.calls):
                if earlier and self._random.random() < 1 / 3:
                    attempt = self._random.choice(earlier)
                else:
                    key = f"k{self._slot}.{number % 7}" if self._random.random() < 0.5 else None
                    value = self._recorder.value(self._random.choice([20, 60, 200]))
                    unique = f"{self._recorder.process}-{number}"
                    attempt = Attempt(topic=self._plan.topic, value=value, key=key, idempotency_key=unique)
                    earlier = [*earlier[-50:], attempt]
                self._until_known(attempt)
                self._done += 1
                self._board.tell(self._slot, -1, self._done)

    def _until_known(self, attempt: Attempt) -> None:
        server = self._random.randrange(len(self._plan.ports))
        while True:
            try:
                with self._recorder.publish(attempt) as call:
                    call.ok(self._publish(attempt, server))
                return
            except REFUSALS:
                raise
            except (OSError, http.client.HTTPException, LakelogError):
                self._connections.pop(server, None)
                server = (server + 1) % len(self._plan.ports)
                time.sleep(0.02)

    def _publish(self, attempt: Attempt, server: int) -> PublishedAt:
        self._board.tell(self._slot, server, self._done)
        connection = self._connections.get(server)
        if connection is None:
            port = self._plan.ports[server]
            connection = self._connections[server] = http.client.HTTPConnection("127.0.0.1", port, timeout=15)
        message = {"key": attempt.key, "value": attempt.value.decode(), "idempotency_key": attempt.idempotency_key}
        path = f"/v1/topics/{attempt.topic}/messages"
        connection.request("POST", path, json.dumps({"messages": [message]}), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        data = json.loads(answer.read())
        if answer.status not in (200, 207):
            raise error_of(data) if "code" in data else OutcomeUnknown(f"status {answer.status}")
        (result,) = data["results"]
        if "error" in result:
            raise error_of(result["error"])
        return PublishedAt(
            partition=result["partition"], offset=result["offset"], duplicate=result.get("duplicate", False)
        )


def main() -> None:
    plan = msgspec.json.decode(sys.argv[1], type=Plan)
    slots = int(sys.argv[2])
    board = Board(plan.board, slots)
    failed: list[BaseException] = []

    def run(number: int) -> None:
        try:
            Worker(plan, board, number).run()
        except BaseException as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
