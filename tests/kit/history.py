"""Histories: what client processes attempted and what they were told, as files and as operations.

One JSON-lines file per client process, which takes a new id after each crash; `tests.kit.recorder` writes them. This
module loads them and judges nothing but whether they are whole: see `tests.kit.checkers`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

Kind = Literal["invoke", "ok", "fail", "info", "end"]
Outcome = Literal["ok", "fail", "info"]


def value_hash(value: bytes) -> str:
    return hashlib.sha256(value).hexdigest()[:16]


class Seen(msgspec.Struct, frozen=True, array_like=True):
    """One message as a fetch returned it."""

    offset: int
    hash: str
    key: str | None = None


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One line of a file. `line` counts them from 0, so that a missing one shows; the recorder stamps it."""

    kind: Kind
    counter: int
    line: int = -1
    process: str = ""
    time_ns: int = 0
    wall_ns: int = 0
    op: Literal["publish", "fetch", ""] = ""
    batch: int | None = None
    topic: str = ""
    partition: int | None = None
    offset: int | None = None
    key: str | None = None
    idempotency_key: str | None = None
    hash: str = ""
    producer: str | None = None
    sequence: int | None = None
    duplicate: bool = False
    messages: tuple[Seen, ...] = ()
    log_start: int | None = None
    high_watermark: int | None = None
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Operation:
    """One message published, or one fetch: the invoke line and what became of it."""

    process: str
    counter: int
    op: str
    topic: str
    invoked_ns: int
    outcome: Outcome
    completed_ns: int | None = None
    batch: int | None = None
    key: str | None = None
    idempotency_key: str | None = None
    hash: str = ""
    producer: str | None = None
    sequence: int | None = None
    asked_partition: int | None = None
    asked_offset: int | None = None
    partition: int | None = None
    offset: int | None = None
    duplicate: bool = False
    messages: tuple[Seen, ...] = ()
    log_start: int | None = None
    high_watermark: int | None = None

    @property
    def id(self) -> str:
        return f"{self.process}-{self.counter}"


@dataclass(frozen=True, kw_only=True)
class History:
    """All operations of a run. `cut` says what is missing or damaged; nothing may be called valid then."""

    operations: tuple[Operation, ...]
    cut: tuple[str, ...] = ()

    def publishes(self) -> Iterator[Operation]:
        return (operation for operation in self.operations if operation.op == "publish")

    def fetches(self) -> Iterator[Operation]:
        return (operation for operation in self.operations if operation.op == "fetch")


def load(folder: Path, *, crashed: Collection[str] = ()) -> History:
    """Reads all histories of a folder.

    `crashed` names the processes that were killed: only they may lack their last line. Anything else that is missing,
    damaged or out of place is told in `cut`, never passed over.
    """
    operations: list[Operation] = []
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
    return History(operations=tuple(operations), cut=tuple(cut))


class _Reader:
    """Reads one file up to the first damage."""

    def __init__(self, path: Path, *, may_lack_end: bool) -> None:
        self._path = path
        self._may_lack_end = may_lack_end
        self._invoked: dict[int, Line] = {}
        self._completed: dict[int, Line] = {}
        self.cut: list[str] = []

    def read(self) -> None:
        decoder = msgspec.json.Decoder(Line)
        ended = False
        with self._path.open("rb") as lines:
            for number, raw in enumerate(lines):
                try:
                    if ended or not raw.endswith(b"\n"):
                        raise ValueError("more after the end" if ended else "the line is torn")
                    ended = self._take(number, decoder.decode(raw))
                except (ValueError, msgspec.DecodeError) as exc:
                    self.cut.append(f"{self._path.name}, line {number + 1}: {exc}")
                    return
        if not ended and not self._may_lack_end:
            self.cut.append(f"{self._path.name}: it ends before its end line")

    def operations(self) -> list[Operation]:
        return [_operation(line, self._completed.get(counter)) for counter, line in self._invoked.items()]

    def _take(self, number: int, line: Line) -> bool:
        if line.line != number or line.process != self._path.stem:
            raise ValueError(f"found line {line.line} of {line.process}")
        if line.kind == "end":
            # The end is written by an orderly close, when no call can be under way.
            if len(self._completed) != len(self._invoked):
                raise ValueError("calls without an outcome before the end")
            return True
        fresh = line.kind == "invoke"
        known = line.counter in self._invoked
        if fresh == known or line.counter in self._completed:
            raise ValueError(f"{line.kind} of operation {line.counter} is out of place")
        (self._invoked if fresh else self._completed)[line.counter] = line
        return False


def _operation(invoke: Line, completion: Line | None) -> Operation:
    # A call that never came back may have happened.
    outcome: Outcome = "info"
    if completion is not None and completion.kind in ("ok", "fail"):
        outcome = "ok" if completion.kind == "ok" else "fail"
    return Operation(
        process=invoke.process,
        counter=invoke.counter,
        op=invoke.op,
        topic=invoke.topic,
        invoked_ns=invoke.time_ns,
        outcome=outcome,
        completed_ns=completion.time_ns if completion else None,
        batch=invoke.batch,
        key=invoke.key,
        idempotency_key=invoke.idempotency_key,
        hash=invoke.hash,
        producer=invoke.producer,
        sequence=invoke.sequence,
        asked_partition=invoke.partition,
        asked_offset=invoke.offset,
        partition=completion.partition if completion else None,
        offset=completion.offset if completion else None,
        duplicate=completion.duplicate if completion else False,
        messages=completion.messages if completion else (),
        log_start=completion.log_start if completion else None,
        high_watermark=completion.high_watermark if completion else None,
    )
