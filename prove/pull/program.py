"""One program that pulls, with the client of this checkout: it asks, works for a moment, and answers or commits.

It records each call of its own (a read without a partition), then the messages that the call returned (a read for each
partition), so that the next call shows that the program was done with them.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from lakelog.client._sync.http import HttpTransport
from lakelog.client._sync.lakelog import Lakelog
from lakelog.client.connecting.connect import policy_of
from lakelog.client.connecting.servers import servers_of
from lakelog.client.worker.pool import WorkerSettings
from lakelog.errors import LakelogError, Unavailable
from lakelog.model.group import Exponential
from prove.history.lines import Line
from prove.history.recorder import HistoryRecorder
from prove.history.tables import text_id
from prove.lab.load.calls import TOKEN
from prove.lab.load.messages import does
from prove.lab.load.plan import LoadClient
from prove.lab.shared_progress import ProgressField
from prove.pull.plan import HOST, LEASE_KINDS, REAL_TIME, RESUMABLE, TOPIC, PullPlan, group_of
from prove.pull.recording import CallRecorder, RecordingTransport, recording_keeper

RETRIES = Exponential(max=3, base_seconds=0.2, max_seconds=1.0)
THREADS = 3
"""The number of threads of a program that calls `next` in a lease group."""
WAIT_SECONDS = 0.5
PAGE = 500
TIMEOUT_SECONDS = 30.0

Place = tuple[int, int, int, int]
"""The partition, the offset, the hash of the value and of the key of a message."""


class PullProgram:
    """One process with one consumer."""

    def __init__(self, plan: PullPlan) -> None:
        self._plan = plan
        self._client = LoadClient(plan)
        self._recorder = HistoryRecorder(Path(plan.folder) / "history", plan.name)
        self._calls = CallRecorder(self._recorder, TOPIC)
        self._group = group_of(plan.kind)
        self._guard = threading.Lock()

    def run(self) -> None:
        while not self._client.stopped:
            # A program that cannot join within its timeout starts again, as a service manager would start it.
            with contextlib.suppress(Unavailable), self._connected() as log, self._consumer(log) as consumer:
                self._run(consumer)
        self._calls.close()

    def _run(self, consumer: Any) -> None:
        if self._plan.kind != "next":
            self._loop(consumer, self._step(consumer))
            return
        threads = [threading.Thread(target=self._loop, args=(consumer, self._next)) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Lakelog]:
        ports = self._plan.ports[self._plan.slot % len(self._plan.ports) :] + self._plan.ports
        servers = servers_of(",".join(f"http://127.0.0.1:{port}" for port in dict.fromkeys(ports)))
        token = os.environ[TOKEN]
        settings = WorkerSettings(
            transport=lambda: RecordingTransport(servers, token, self._calls),
            keeper=lambda _: recording_keeper(servers, token, self._calls),
            owns_transport=True,
        )
        with Lakelog(HttpTransport(servers, token), policy_of(TIMEOUT_SECONDS), settings) as log:
            yield log

    def _consumer(self, log: Lakelog) -> Any:
        plan = self._plan
        if plan.kind == REAL_TIME:
            return log.consumer(TOPIC, prefetch=PAGE)
        more: dict[str, Any] = {"start_from": "earliest", "session_timeout": plan.session}
        if plan.kind in LEASE_KINDS:
            return log.consumer(TOPIC, group=self._group, lease=plan.lease, retries=RETRIES, **more)
        more |= {"commit_interval": plan.interval, "prefetch": PAGE}
        if plan.kind == RESUMABLE:
            return log.consumer(TOPIC, mode="resumable", host_id=HOST, **more)
        return log.consumer(TOPIC, group=self._group, kind="cursor", commit=plan.kind, **more)  # type: ignore[arg-type]

    def _loop(self, consumer: Any, step: Callable[[Any], None]) -> None:
        while not self._client.stopped:
            try:
                step(consumer)
            except LakelogError as error:
                # The client has retried, or the messages belong to another program now.
                self._client.count(ProgressField.REFUSED)
                print(f"{error!r}"[:300], file=sys.stderr, flush=True)
                time.sleep(0.05)

    def _step(self, consumer: Any) -> Callable[[Any], None]:
        if self._plan.kind == "batch":
            return self._batch
        if self._plan.kind == "arrow":
            return self._arrow
        if self._plan.kind == REAL_TIME:
            following = DenseOffsets()
            return lambda _: following.take(self._pull(lambda: consumer.batch(PAGE, timeout=WAIT_SECONDS)))
        return self._cursor

    # Lease groups -----------------------------------------------------------------------------------------------------

    def _next(self, consumer: Any) -> None:
        found = self._pull(lambda: consumer.next(timeout=WAIT_SECONDS))
        for message in found:
            self._work()
            with self._guard:
                drawn = self._client.dice.random()
            action = does(message.message.raw)
            if action == "bad":
                message.nack(reason="bad")
            elif action == "discard":
                message.discard()
            elif drawn < 0.01:
                message.nack(delay=0)
            else:
                message.ack()

    def _batch(self, consumer: Any) -> None:
        batch = self._pull(lambda: consumer.batch(self._client.dice.randint(1, 100), timeout=WAIT_SECONDS))
        self._work()
        if batch:
            for message in batch:
                if does(message.message.raw) == "bad":
                    batch.fail(message, "bad")
            batch.ack()

    def _arrow(self, consumer: Any) -> None:
        for batch in self._arrow_batches(consumer.arrow(200, timeout=WAIT_SECONDS)):
            self._work()
            if self._client.dice.random() < 0.02:
                batch.nack(delay=0)
            else:
                batch.ack()

    # Cursor groups ----------------------------------------------------------------------------------------------------

    def _cursor(self, consumer: Any) -> None:
        """Pull one by one, in batches or as columns, and commit if the program has to."""
        drawn, found = self._client.dice.random(), []
        if drawn < 0.2:
            found = [*self._pull(lambda: consumer.next(timeout=WAIT_SECONDS))]
            self._work()
        elif drawn < 0.9:
            found = [*self._pull(lambda: consumer.batch(self._client.dice.randint(1, 200), timeout=WAIT_SECONDS))]
            self._work()
        else:
            for _ in self._arrow_batches(consumer.arrow(timeout=WAIT_SECONDS)):
                self._work()
        if self._plan.kind != "manual":
            return
        if found and self._client.dice.random() < 0.5:
            consumer.commit(found[-1])
        else:
            consumer.commit()

    def _arrow_batches(self, batches: Any) -> Iterator[Any]:
        """Yield one batch of columns at most, so that the program may choose again."""
        yield from self._pull(lambda: next(batches, None))

    # The record -------------------------------------------------------------------------------------------------------

    def _pull(self, ask: Callable[[], Any]) -> Any:
        """Record a call for messages and what it returned. Return the messages, or the batch."""
        line = Line(kind="invoke", op="read", topic=TOPIC, group=self._group, reader="replay")
        with self._calls.call(line) as told:
            found = ask()
            told(Line(kind="ok"))
        if found is None:
            return ()
        places = [_place(each) for each in found] if isinstance(found, Sequence) else _places(found)
        self._saw(places)
        self._client.count(ProgressField.DELIVERED, len(places))
        return found if isinstance(found, Sequence) else [found]

    def _saw(self, places: Sequence[Place]) -> None:
        by_partition: dict[int, list[Place]] = {}
        for place in places:
            by_partition.setdefault(place[0], []).append(place)
        for partition, some in by_partition.items():
            _, offsets, hashes, keys = zip(*some, strict=True)
            with self._calls.call(
                Line(kind="invoke", op="read", topic=TOPIC, group=self._group, reader="replay", partition=partition)
            ) as told:
                told(Line(kind="ok", offsets=offsets, hashes=hashes, keys=keys))

    def _work(self) -> None:
        with self._guard:
            drawn = self._client.dice.random()
        time.sleep(2 * drawn * self._plan.work)


class DenseOffsets:
    """The messages of a program without a group: each partition without gaps and repeats."""

    def __init__(self) -> None:
        self._next: dict[int, int] = {}

    def take(self, messages: Sequence[Any]) -> None:
        for message in messages:
            known = self._next.get(message.partition)
            if known is not None and message.offset != known:
                raise RuntimeError(f"partition {message.partition} continued at {message.offset} instead of {known}")
            self._next[message.partition] = message.offset + 1


def _place(found: Any) -> Place:
    message = found.message
    return message.partition, message.offset, text_id(message.raw), text_id(message.key)


def _places(found: Any) -> list[Place]:
    """Return the places of one message, or of columns."""
    if not hasattr(found, "table"):
        return [_place(found)]
    rows = found.table.select(["partition", "offset", "value", "key"]).to_pydict()
    hashes, keys = (map(text_id, rows[name]) for name in ("value", "key"))
    return list(zip(rows["partition"], rows["offset"], hashes, keys, strict=True))


def main(plan: bytes) -> None:
    PullProgram(msgspec.json.decode(plan, type=PullPlan)).run()
