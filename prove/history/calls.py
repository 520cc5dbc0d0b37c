"""Calls in progress. The recorder returns them to callers, who report the outcome. A call only writes its lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

from msgspec.structs import replace

from lakelog import errors
from prove.history.lines import Line, Seen, Told, identity_of
from prove.history.tables import text_id

# Refusals before any write. Overloaded and Unavailable are left out on purpose: `info` is never wrong.
REFUSALS = (
    errors.InvalidRequest,
    errors.NotAuthenticated,
    errors.NotAllowed,
    errors.NotFound,
    errors.Conflict,
    errors.OffsetOutOfRange,
)


class Writer(Protocol):
    """The interface of the recorder that calls need."""

    def counters(self, count: int) -> int: ...

    def write(self, entries: Sequence[Line]) -> None: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """One message about to be published. `partition` is set only if the caller chooses it."""

    topic: str
    value: bytes
    key: str | None = None
    partition: int | None = None
    idempotency_key: str | None = None
    producer: str | None = None
    sequence: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedAt:
    """The location of a message, from the response."""

    partition: int
    offset: int
    duplicate: bool = False


class RecordedCall:
    """The base of all calls. The outcome of a call is reported once."""

    def __init__(self, recorder: Writer, invoke: Line) -> None:
        self._recorder = recorder
        self._first = recorder.counters(1)
        self.done = False
        recorder.write([replace(invoke, counter=self._first)])

    def failed(self, error: BaseException) -> None:
        self._complete(_ended([error]))

    def info(self, reason: str) -> None:
        self._complete(Line(kind="info", reason=reason))

    def _complete(self, outcome: Line) -> None:
        self.done = True
        self._recorder.write([replace(outcome, counter=self._first)])


class FetchCall(RecordedCall):
    """A read in progress."""

    def ok(self, messages: Sequence[Seen], *, log_start: int, high_watermark: int) -> None:
        self.saw(
            [each.offset for each in messages],
            [each.hash for each in messages],
            keys=[each.key for each in messages],
            identities=[each.identity for each in messages],
            bounds=(log_start, high_watermark),
        )

    def saw(
        self,
        offsets: Sequence[int],
        hashes: Sequence[int],
        *,
        keys: Sequence[int] = (),
        identities: Sequence[int] = (),
        bounds: tuple[int, int],
    ) -> None:
        """Report the observed messages as columns; `bounds` are log start and high watermark."""
        line = Line(kind="ok", offsets=tuple(offsets), hashes=tuple(hashes), keys=_some(keys))
        self._complete(replace(line, identities=_some(identities), log_start=bounds[0], high_watermark=bounds[1]))


class MemberCall(RecordedCall):
    """A join, leave or commit in progress."""

    def ok(self, generation: int | None = None, partitions: Sequence[int] = ()) -> None:
        self._complete(Line(kind="ok", generation=generation, partitions=tuple(partitions)))


class PublishCall:
    """A publish in progress. Each of its messages has its own counter; all have the same `batch`."""

    def __init__(self, recorder: Writer, attempts: Sequence[Attempt]) -> None:
        topics, producers = {each.topic for each in attempts}, {each.producer for each in attempts}
        if len(topics) != 1 or len(producers) != 1:
            raise ValueError(
                "a publish needs at least one message, and all messages must have the same topic and producer"
            )
        self._recorder = recorder
        self._count = len(attempts)
        self._first = recorder.counters(self._count)
        self.done = False
        recorder.write([self._invoke(attempts, topics.pop(), producers.pop())])

    def ok(self, *placed: PublishedAt) -> None:
        self.each(placed)

    def each(self, results: Sequence[PublishedAt | BaseException]) -> None:
        """Report one result per message, as a batch response does: its location, or its error."""
        if len(results) != self._count:
            raise ValueError(f"{len(results)} results for {self._count} messages; pass one result per message")
        lines, first = [], self._first
        for _, part in groupby(results, key=_outcome):
            run = list(part)
            lines.append(replace(_ended(run), counter=first, batch=self._first, count=len(run)))
            first += len(run)
        self._complete(lines)

    def placed(self, partitions: Sequence[int], offsets: Sequence[int]) -> None:
        """Report that all messages succeeded, as columns without duplicates."""
        if not len(partitions) == len(offsets) == self._count:
            raise ValueError(f"{len(offsets)} places for {self._count} messages; pass one place per message")
        line = Line(kind="ok", counter=self._first, partitions=tuple(partitions), offsets=tuple(offsets))
        self._complete([line])

    def failed(self, error: BaseException) -> None:
        """Report the failure of the whole call."""
        self._complete([replace(_ended([error]), counter=self._first)])

    def info(self, reason: str) -> None:
        self._complete([Line(kind="info", counter=self._first, reason=reason)])

    def _invoke(self, attempts: Sequence[Attempt], topic: str, producer: str | None) -> Line:
        wished = [-1 if each.partition is None else each.partition for each in attempts]
        sequences = [-1 if each.sequence is None else each.sequence for each in attempts]
        return Line(
            kind="invoke",
            op="publish",
            counter=self._first,
            topic=topic,
            producer=producer,
            hashes=tuple([text_id(each.value) for each in attempts]),
            keys=_some([text_id(each.key) for each in attempts]),
            identities=_some([identity_of(each.idempotency_key, producer, each.sequence) for each in attempts]),
            partitions=_some(wished, nothing=-1),
            sequences=_some(sequences, nothing=-1),
        )

    def _complete(self, lines: Sequence[Line]) -> None:
        self.done = True
        self._recorder.write(lines)


def _outcome(result: PublishedAt | BaseException) -> Told:
    return "ok" if isinstance(result, PublishedAt) else "fail" if isinstance(result, REFUSALS) else "info"


def _ended(results: Sequence[PublishedAt | BaseException]) -> Line:
    """Return the line for messages with the same outcome."""
    placed = [each for each in results if isinstance(each, PublishedAt)]
    if not placed:
        first = results[0]
        return Line(kind=_outcome(first), reason=f"{type(first).__name__}: {first}"[:500])
    return Line(
        kind="ok",
        partitions=tuple([each.partition for each in placed]),
        offsets=tuple([each.offset for each in placed]),
        duplicates=_some([int(each.duplicate) for each in placed]),
    )


def _some(numbers: Sequence[int], *, nothing: int = 0) -> tuple[int, ...]:
    """Return the numbers; an empty tuple if all of them equal `nothing`."""
    return () if all(number == nothing for number in numbers) else tuple(numbers)
