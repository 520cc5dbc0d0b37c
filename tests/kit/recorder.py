"""Recorders: each client process of a test writes its history with one, so that a crash of it loses nothing.

An `invoke` line is with the operating system before the call is made; `ok`, `fail` or `info` follows. Only a definite
refusal of ours is `fail`; whatever else went wrong is `info`: it may have happened. A client that retries by itself
must not turn an unknown first try into a refusal of the second; the recorder cannot see that, the checkers do (S2).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import msgspec
from msgspec.structs import replace

from lakelog import errors
from tests.kit.history import Kind, Line, Seen, value_hash

# Refusals before any write. Overloaded and Unavailable are left out on purpose: `info` is never wrong.
REFUSALS = (
    errors.InvalidRequest,
    errors.NotAuthenticated,
    errors.NotAllowed,
    errors.NotFound,
    errors.Conflict,
    errors.OffsetOutOfRange,
)


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One message about to be published. `partition` only where the caller asks for one."""

    topic: str
    value: bytes
    key: str | None = None
    partition: int | None = None
    idempotency_key: str | None = None
    producer: str | None = None
    sequence: int | None = None


@dataclass(frozen=True, kw_only=True)
class Placed:
    """Where a message is, as the answer said."""

    partition: int
    offset: int
    duplicate: bool = False


class Recorder:
    """Writes the history of one client process; safe for threads, not to be carried over a fork."""

    def __init__(
        self,
        folder: Path,
        process: str,
        *,
        clock: Callable[[], int] = time.monotonic_ns,
        wall: Callable[[], int] = time.time_ns,
    ) -> None:
        self.process = process
        # A process id is used once: a second history under it would hide what the first one attempted.
        self._file = (folder / f"{process}.jsonl").open("xb", buffering=0)
        self._clock, self._wall = clock, wall
        self._guard = threading.Lock()
        self._counter = self._lines = 0

    def value(self, size: int = 0) -> bytes:
        """A value that nobody else publishes: `<process>-<counter>`, filled up to `size`."""
        with self._guard:
            name = f"{self.process}-v{self._counter}".encode()
            self._counter += 1
        return name.ljust(size, b".")

    @contextmanager
    def publish(self, *attempts: Attempt) -> Iterator[PublishCall]:
        """One call that publishes one message or a batch; tell its outcome by `call.ok(…)`, or let the error out."""
        call = PublishCall(self, attempts)
        with self._recorded(call):
            yield call

    @contextmanager
    def fetch(self, topic: str, partition: int, offset: int) -> Iterator[FetchCall]:
        """One fetch; tell its outcome by `call.ok(…)`, or let the error out."""
        counter = self.counters(1)
        invoke = Line(kind="invoke", op="fetch", counter=counter, topic=topic, partition=partition, offset=offset)
        call = FetchCall(self, invoke)
        with self._recorded(call):
            yield call

    def close(self) -> None:
        """Writes that the history is whole; a crash leaves this out."""
        self.write([Line(kind="end", counter=self.counters(1))])
        self._file.close()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def counters(self, count: int) -> int:
        with self._guard:
            first = self._counter
            self._counter += count
            return first

    def write(self, entries: Sequence[Line]) -> None:
        """One write to the operating system for all lines: what it took survives a kill -9."""
        with self._guard:
            data = bytearray()
            stamps = {"process": self.process, "time_ns": self._clock(), "wall_ns": self._wall()}
            for entry in entries:
                data += msgspec.json.encode(replace(entry, line=self._lines, **stamps)) + b"\n"
                self._lines += 1
            written = self._file.write(data)
            if written != len(data):
                raise OSError(f"wrote {written} of {len(data)} bytes to {self._file.name}; is the disk full?")

    @contextmanager
    def _recorded(self, call: PublishCall | FetchCall) -> Iterator[None]:
        try:
            yield
        except BaseException as exc:
            if not call.done:
                call.failed(exc)
            raise
        if not call.done:
            call.info("no outcome was told")


class PublishCall:
    """A publish under way; each message of it is an operation of its own, all with the same `batch`."""

    def __init__(self, recorder: Recorder, attempts: Sequence[Attempt]) -> None:
        self._recorder = recorder
        self._first = recorder.counters(len(attempts))
        self._count = len(attempts)
        self.done = False
        recorder.write([self._invoke(index, attempt) for index, attempt in enumerate(attempts)])

    def ok(self, *placed: Placed) -> None:
        self.each(placed)

    def each(self, results: Sequence[Placed | BaseException]) -> None:
        """A result per message, as a batch answers: where it is, or the error that it got."""
        if len(results) != self._count:
            raise ValueError(f"{len(results)} results for {self._count} messages; give one for each")
        self._complete([_outcome(result) for result in results])

    def failed(self, error: BaseException) -> None:
        self._complete([_outcome(error)] * self._count)

    def info(self, reason: str) -> None:
        self._complete([Line(kind="info", counter=0, reason=reason)] * self._count)

    def _invoke(self, index: int, attempt: Attempt) -> Line:
        return Line(
            kind="invoke",
            op="publish",
            counter=self._first + index,
            batch=self._first,
            topic=attempt.topic,
            partition=attempt.partition,
            key=attempt.key,
            idempotency_key=attempt.idempotency_key,
            hash=value_hash(attempt.value),
            producer=attempt.producer,
            sequence=attempt.sequence,
        )

    def _complete(self, outcomes: Sequence[Line]) -> None:
        self.done = True
        self._recorder.write([replace(outcome, counter=self._first + i) for i, outcome in enumerate(outcomes)])


class FetchCall:
    """A fetch under way."""

    def __init__(self, recorder: Recorder, invoke: Line) -> None:
        self._recorder = recorder
        self._counter = invoke.counter
        self.done = False
        recorder.write([invoke])

    def ok(self, messages: Sequence[Seen], *, log_start: int, high_watermark: int) -> None:
        seen = tuple(messages)
        self._complete(Line(kind="ok", counter=0, messages=seen, log_start=log_start, high_watermark=high_watermark))

    def failed(self, error: BaseException) -> None:
        self._complete(_outcome(error))

    def info(self, reason: str) -> None:
        self._complete(Line(kind="info", counter=0, reason=reason))

    def _complete(self, outcome: Line) -> None:
        self.done = True
        self._recorder.write([replace(outcome, counter=self._counter)])


def _outcome(result: Placed | BaseException) -> Line:
    if isinstance(result, Placed):
        return Line(kind="ok", counter=0, partition=result.partition, offset=result.offset, duplicate=result.duplicate)
    kind: Kind = "fail" if isinstance(result, REFUSALS) else "info"
    return Line(kind=kind, counter=0, reason=f"{type(result).__name__}: {result}"[:500])
