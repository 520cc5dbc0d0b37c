"""Histories of leases: what owners asked for and said, and what they were told, as files and as operations.

One JSON-lines file per owner's process, written before each call and after its answer, as in `tests.kit.recorder`: only
a definite refusal is `fail`, whatever else went wrong is `info` and may have happened. This module loads them and
judges nothing but whether they are whole.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tests.kit.history import Kind, Outcome

Op = Literal["consume", "ack", "nack", "release", "fail", "discard", "extend", "seek", "progress"]
OPS: tuple[str, ...] = get_args(Op)


class Got(Struct, frozen=True, array_like=True):
    """One message of a lease: its offset, the number of this delivery, and how often it has failed."""

    offset: int
    delivery: int = 1
    failures: int = 0


class LeaseSeen(Struct, frozen=True, array_like=True):
    """One lease as a consume returned it; the expiry is on the database's clock."""

    partition: int
    token: int
    expires_ms: int
    suspect: bool
    messages: tuple[Got, ...]


class ProgressSeen(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far the group was in one partition, as it was told."""

    partition: int
    epoch: int
    start: int
    committed: int
    frontier: int
    high_watermark: int
    leased: int = 0
    waiting: int = 0
    skipped: int = 0
    acked: int = 0
    dead: int = 0
    discarded: int = 0
    filtered: int = 0
    expired: int = 0
    cut: int = 0

    @property
    def finished(self) -> int:
        return self.acked + self.dead + self.discarded + self.filtered + self.expired + self.cut


class LeaseLine(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One line of a file. `line` counts them from 0, so that a missing one shows; the recorder stamps it."""

    kind: Kind
    counter: int
    line: int = -1
    process: str = ""
    time_ns: int = 0
    wall_ns: int = 0
    op: Op | Literal[""] = ""
    topic: str = ""
    group: str = ""
    owner: str = ""
    partition: int | None = None
    token: int | None = None
    offsets: tuple[int, ...] = ()
    lease_ms: int | None = None
    delay_ms: int | None = None
    expires_ms: int | None = None
    dead: tuple[int, ...] = ()
    leases: tuple[LeaseSeen, ...] = ()
    progress: tuple[ProgressSeen, ...] = ()
    epoch: int | None = None
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaseOperation:
    """One call, or one answer of many in a call: the invoke line and what became of it. Times in nanoseconds.

    `invoked_ns` and `completed_ns` are monotonic, the same for all processes of the machine; `invoked_wall_ns` and
    `completed_wall_ns` are the clock that the database has, too.
    """

    process: str
    counter: int
    op: str
    topic: str
    group: str
    owner: str
    outcome: Outcome
    invoked_ns: int
    invoked_wall_ns: int = 0
    completed_ns: int | None = None
    completed_wall_ns: int | None = None
    partition: int | None = None
    token: int | None = None
    offsets: tuple[int, ...] = ()
    lease_ms: int | None = None
    delay_ms: int | None = None
    expires_ms: int | None = None
    dead: tuple[int, ...] = ()
    leases: tuple[LeaseSeen, ...] = ()
    progress: tuple[ProgressSeen, ...] = ()
    epoch: int | None = None
    reason: str = ""

    @property
    def id(self) -> str:
        return f"{self.process}-{self.counter}"

    @property
    def happened(self) -> bool:
        """Whether it may have: all that was not refused."""
        return self.outcome != "fail"


@dataclass(frozen=True, kw_only=True)
class LeaseHistory:
    """All operations of a run. `cut` says what is missing or damaged; nothing may be called valid then."""

    operations: tuple[LeaseOperation, ...]
    cut: tuple[str, ...] = ()


class LeaseRecorder:
    """Writes the history of one owner's process; what the operating system took survives a kill -9."""

    def __init__(
        self,
        folder: Path,
        process: str,
        *,
        clock: Callable[[], int] = time.monotonic_ns,
        wall: Callable[[], int] = time.time_ns,
    ) -> None:
        self.process = process
        # A process id is used once: a second history under it would hide what the first one did.
        self._file = (folder / f"{process}.jsonl").open("xb", buffering=0)
        self._clock, self._wall = clock, wall
        self._counter = self._lines = 0

    def invoke(self, *lines: LeaseLine) -> int:
        """Before the call: what it asks for. Returns the counter of the first."""
        first = self._counter
        self._counter += len(lines)
        self._write([replace(line, kind="invoke", counter=first + number) for number, line in enumerate(lines)])
        return first

    def complete(self, first: int, *lines: LeaseLine) -> None:
        """After its answer: what became of each."""
        self._write([replace(line, counter=first + number) for number, line in enumerate(lines)])

    def close(self) -> None:
        """Writes that the history is whole; a crash leaves this out."""
        self._write([LeaseLine(kind="end", counter=self._counter)])
        self._file.close()

    def _write(self, lines: Sequence[LeaseLine]) -> None:
        data = bytearray()
        now, wall = self._clock(), self._wall()
        for line in lines:
            stamped = replace(line, line=self._lines, process=self.process, time_ns=now, wall_ns=wall)
            data += msgspec.json.encode(stamped) + b"\n"
            self._lines += 1
        written = self._file.write(data)
        if written != len(data):
            raise OSError(f"wrote {written} of {len(data)} bytes to {self._file.name}; is the disk full?")


def load_leases(folder: Path, *, crashed: Collection[str] = ()) -> LeaseHistory:
    """Reads all histories of a folder. `crashed` names the processes that were killed: only they may lack their end."""
    operations: list[LeaseOperation] = []
    cut: list[str] = []
    files = sorted(folder.glob("*.jsonl"))
    if not files:
        cut.append(f"no history in {folder}")
    cut += [f"{name}: its history is missing" for name in crashed if not (folder / f"{name}.jsonl").exists()]
    for path in files:
        reader = _Reader(path, may_lack_end=path.stem in crashed)
        reader.read()
        operations += reader.operations()
        cut += reader.cut
    operations.sort(key=lambda operation: operation.invoked_ns)
    return LeaseHistory(operations=tuple(operations), cut=tuple(cut))


class _Reader:
    """Reads one file up to the first damage."""

    def __init__(self, path: Path, *, may_lack_end: bool) -> None:
        self._path = path
        self._may_lack_end = may_lack_end
        self._invoked: dict[int, LeaseLine] = {}
        self._completed: dict[int, LeaseLine] = {}
        self.cut: list[str] = []

    def read(self) -> None:
        decoder = msgspec.json.Decoder(LeaseLine)
        ended = False
        with self._path.open("rb") as lines:
            for number, raw in enumerate(lines):
                try:
                    if ended or not raw.endswith(b"\n"):
                        raise ValueError("more after the end" if ended else "the line is torn")
                    ended = self._take(number, decoder.decode(raw))
                except (ValueError, msgspec.DecodeError) as error:
                    self.cut.append(f"{self._path.name}, line {number + 1}: {error}")
                    return
        if not ended and not self._may_lack_end:
            self.cut.append(f"{self._path.name}: it ends before its end line")

    def operations(self) -> list[LeaseOperation]:
        return [_operation(line, self._completed.get(counter)) for counter, line in self._invoked.items()]

    def _take(self, number: int, line: LeaseLine) -> bool:
        if line.line != number or line.process != self._path.stem:
            raise ValueError(f"found line {line.line} of {line.process}")
        if line.kind == "end":
            if len(self._completed) != len(self._invoked):
                raise ValueError("calls without an outcome before the end")
            return True
        fresh = line.kind == "invoke"
        if fresh == (line.counter in self._invoked) or line.counter in self._completed:
            raise ValueError(f"{line.kind} of operation {line.counter} is out of place")
        (self._invoked if fresh else self._completed)[line.counter] = line
        return False


_NOTHING = LeaseLine(kind="info", counter=0)


def _operation(invoke: LeaseLine, completion: LeaseLine | None) -> LeaseOperation:
    # A call that never came back may have happened.
    told = completion or _NOTHING
    outcome: Outcome = "ok" if told.kind == "ok" else "fail" if told.kind == "fail" else "info"
    return LeaseOperation(
        process=invoke.process,
        counter=invoke.counter,
        op=invoke.op,
        topic=invoke.topic,
        group=invoke.group,
        owner=invoke.owner,
        outcome=outcome,
        invoked_ns=invoke.time_ns,
        invoked_wall_ns=invoke.wall_ns,
        completed_ns=completion.time_ns if completion else None,
        completed_wall_ns=completion.wall_ns if completion else None,
        partition=invoke.partition,
        token=invoke.token,
        offsets=invoke.offsets,
        lease_ms=invoke.lease_ms,
        delay_ms=invoke.delay_ms,
        expires_ms=told.expires_ms,
        dead=told.dead,
        leases=told.leases,
        progress=told.progress,
        epoch=told.epoch,
        reason=told.reason,
    )
