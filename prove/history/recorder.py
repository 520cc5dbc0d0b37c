"""The recorder with which each client process of a run writes its history, so that a crash loses nothing.

The operating system has the `invoke` line before the call is made; `ok`, `fail` or `info` follows. Only a definite
refusal is `fail`; every other error is `info`, because the call may have taken effect. A client with its own retries
must not turn an unknown first attempt into a refusal of the second. The recorder cannot detect that, but the checks do
(S2).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import msgspec
from msgspec.structs import replace

from prove.history.calls import REFUSALS, Attempt, FetchCall, MemberCall, PublishCall, PublishedAt
from prove.history.lines import Line, ReadBy, Sampled

__all__ = ["REFUSALS", "Attempt", "HistoryRecorder", "PublishedAt"]


class HistoryRecorder:
    """Writes the history of one client process. It is thread-safe, but must not be used across a fork."""

    def __init__(
        self,
        folder: Path,
        process: str,
        *,
        clock: Callable[[], int] = time.monotonic_ns,
        wall: Callable[[], int] = time.time_ns,
    ) -> None:
        self.process = process
        # A process id is used once: a second history with the same id would hide the attempts of the first.
        self._file = (folder / f"{process}.jsonl").open("xb", buffering=0)
        self._clock, self._wall = clock, wall
        self._guard = threading.Lock()
        self._counter = self._lines = 0

    # Publishes and reads ----------------------------------------------------------------------------------------------

    def value(self, size: int = 0) -> bytes:
        """Return a unique value, `<process>-<counter>`, padded to `size`."""
        return f"{self.process}-v{self.counters(1)}".encode().ljust(size, b".")

    @contextmanager
    def publish(self, *attempts: Attempt) -> Iterator[PublishCall]:
        """Record a publish of messages. Report its outcome with `call.ok(…)`, or let the error propagate."""
        call = PublishCall(self, attempts)
        with self._recorded(call):
            yield call

    @contextmanager
    def fetch(
        self, topic: str, partition: int, offset: int, *, reader: ReadBy = "fetch", group: str = ""
    ) -> Iterator[FetchCall]:
        """Record a read. Report its outcome with `call.ok(…)` or `call.saw(…)`, or let the error propagate."""
        line = Line(
            kind="invoke", op="read", topic=topic, partition=partition, offset=offset, reader=reader, group=group
        )
        call = FetchCall(self, line)
        with self._recorded(call):
            yield call

    # Leases -----------------------------------------------------------------------------------------------------------

    def invoke(self, *lines: Line) -> int:
        """Write the lines before a call and return the counter of the first."""
        first = self.counters(len(lines))
        self.write([replace(line, kind="invoke", counter=first + number) for number, line in enumerate(lines)])
        return first

    def complete(self, first: int, *lines: Line) -> None:
        """Write the outcome lines after the response."""
        self.write([replace(line, counter=first + number) for number, line in enumerate(lines)])

    # Members ----------------------------------------------------------------------------------------------------------

    @contextmanager
    def join(self, topic: str, group: str, member: str) -> Iterator[MemberCall]:
        """Record a join. `call.ok(generation, partitions)` reports the first assignment."""
        call = MemberCall(self, Line(kind="invoke", op="join", topic=topic, group=group, owner=member))
        with self._recorded(call):
            yield call

    @contextmanager
    def leave(self, topic: str, group: str, member: str, generation: int) -> Iterator[MemberCall]:
        line = Line(kind="invoke", op="leave", topic=topic, group=group, owner=member, generation=generation)
        call = MemberCall(self, line)
        with self._recorded(call):
            yield call

    @contextmanager
    def commit(self, place: tuple[str, str], member: str, generation: int, partition: int) -> Iterator[MemberCall]:
        """Record a commit that names its generation; `place` is topic and group."""
        line = Line(
            kind="invoke", op="commit", topic=place[0], group=place[1], owner=member, generation=generation,
            partition=partition,
        )  # fmt: skip
        call = MemberCall(self, line)
        with self._recorded(call):
            yield call

    def assigned(self, place: tuple[str, str], member: str, generation: int, partitions: Sequence[int]) -> None:
        """Record that the member now owns these partitions."""
        self._membership(True, place, member, generation, partitions)

    def revoked(self, place: tuple[str, str], member: str, generation: int, partitions: Sequence[int]) -> None:
        """Record that the member no longer owns these partitions."""
        self._membership(False, place, member, generation, partitions)

    # Samples ----------------------------------------------------------------------------------------------------------

    def sample(
        self, kind: Sampled, told: int, truth: int = 0, *, topic: str = "", group: str = "", stale: bool = False
    ) -> None:
        """Record a reported figure with its true value."""
        line = Line(kind="note", op="sample", sample=kind, told=told, truth=truth, stale=stale)
        self.write([replace(line, counter=self.counters(1), topic=topic, group=group)])

    # Writing ----------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Write the end line, which shows that the history is complete. A crash omits it."""
        self.write([Line(kind="end", counter=self.counters(1))])
        self._file.close()

    def __enter__(self) -> HistoryRecorder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def counters(self, count: int) -> int:
        with self._guard:
            first = self._counter
            self._counter += count
            return first

    def write(self, entries: Sequence[Line]) -> None:
        """Write all lines in one system call. Lines that were written survive a kill -9."""
        with self._guard:
            data = bytearray()
            stamps = {"process": self.process, "time_ns": self._clock(), "wall_ns": self._wall()}
            for entry in entries:
                data += msgspec.json.encode(replace(entry, line=self._lines, **stamps)) + b"\n"
                self._lines += 1
            written = self._file.write(data)
            if written != len(data):
                raise OSError(f"wrote {written} of {len(data)} bytes to {self._file.name}; the disk may be full")

    def _membership(
        self, given: bool, place: tuple[str, str], member: str, generation: int, partitions: Sequence[int]
    ) -> None:
        line = Line(
            kind="note", op="assigned" if given else "revoked", counter=self.counters(1), topic=place[0],
            group=place[1], owner=member, generation=generation, partitions=tuple(partitions),
        )  # fmt: skip
        self.write([line])

    @contextmanager
    def _recorded(self, call: PublishCall | FetchCall | MemberCall) -> Iterator[None]:
        try:
            yield
        except BaseException as exc:
            if not call.done:
                call.failed(exc)
            raise
        if not call.done:
            call.info("no outcome was reported")
