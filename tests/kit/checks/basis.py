"""What all checks share: the final read, a violation, and who repeats whom. It checks nothing itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tests.kit.history import Operation

Place = tuple[str, int, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class FinalMessage:
    """One message of the final read. `idempotency_key` where the reader was told it."""

    offset: int
    hash: str
    key: str | None = None
    idempotency_key: str | None = None


@dataclass(frozen=True, kw_only=True)
class FinalPartition:
    """One partition, read whole by a fresh reader; `high_watermark` is the next offset to be given."""

    topic: str
    partition: int
    log_start: int
    high_watermark: int
    messages: tuple[FinalMessage, ...]


@dataclass(frozen=True, kw_only=True)
class FinalRead:
    """The whole log after load, faults, healing and drain."""

    partitions: tuple[FinalPartition, ...]

    def places(self) -> Iterator[tuple[Place, FinalMessage]]:
        for part in self.partitions:
            for message in part.messages:
                yield (part.topic, part.partition, message.offset), message

    def log_starts(self) -> dict[tuple[str, int], int]:
        return {(part.topic, part.partition): part.log_start for part in self.partitions}


@dataclass(frozen=True, kw_only=True)
class Violation:
    """A counter-example: what is wrong, and the operations that show it."""

    invariant: str
    what: str
    operations: tuple[Operation, ...] = ()

    def __str__(self) -> str:
        shown = ", ".join(operation.id for operation in self.operations)
        return f"{self.invariant}: {self.what}" + (f" [{shown}]" if shown else "")


def publishes(operations: Iterable[Operation]) -> list[Operation]:
    return [operation for operation in operations if operation.op == "publish"]


def fetches(operations: Iterable[Operation]) -> list[Operation]:
    """Fetches that answered; the others saw nothing."""
    return [operation for operation in operations if operation.op == "fetch" and operation.outcome == "ok"]


def placed(operation: Operation) -> Place | None:
    """Where an ok publish was said to be."""
    if operation.outcome != "ok" or operation.partition is None or operation.offset is None:
        return None
    return operation.topic, operation.partition, operation.offset


def identity(operation: Operation) -> tuple[str, ...] | None:
    """What makes a second attempt the same message; None where nothing does."""
    if operation.idempotency_key is not None:
        return operation.topic, "key", operation.idempotency_key
    if operation.producer is not None and operation.sequence is not None:
        return operation.topic, "sequence", operation.producer, str(operation.sequence)
    return None


def repeats(operations: Sequence[Operation]) -> set[str]:
    """Ids of publishes that repeat one invoked before: they take that one's place in the log, whenever they come."""
    seen: set[tuple[str, ...]] = set()
    found: set[str] = set()
    for operation in sorted(operations, key=lambda op: (op.invoked_ns, op.process, op.counter)):
        name = identity(operation)
        if name is None:
            continue
        if name in seen:
            found.add(operation.id)
        seen.add(name)
    return found
