"""A transport of the client that records its calls about leases, members and positions, one attempt at a time.

The client retries inside of its calls. Each attempt is a call of its own in the history, so that the checker judges
what the servers did, and not what the client made of it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from lakelog.client._async.http import AsyncHttpTransport
from lakelog.client._sync.http import HttpTransport
from lakelog.client.connecting.servers import ServerUrl
from lakelog.client.values import Consumed
from lakelog.client.worker.lease_extension import LeaseHolder
from lakelog.client.worker.lease_keeper import ThreadLeaseKeeper
from lakelog.errors import LakelogError, OutcomeForgotten, StaleGeneration, UnknownMember
from lakelog.model.lease import Answered, AnswersRequest, ConsumeRequest, LeaseAnswer
from lakelog.model.membership import JoinRequest, LeaveRequest, Membership
from lakelog.model.seek import CommitRequest
from lakelog.wire.leases import LeaseHead
from lakelog.wire.operations import groups as operations
from lakelog.wire.operations.operation import Operation
from prove.history.calls import REFUSALS
from prove.history.lease_lines import OwnerAnswer, answer_line
from prove.history.lines import Got, LeaseSeen, Line, Told
from prove.history.recorder import HistoryRecorder

Asked = TypeVar("Asked")
Found = TypeVar("Found")
_CLOSE_SECONDS = 20.0


class CallRecorder:
    """Records calls of one process, which is one member and one owner, under the name of the process."""

    def __init__(self, recorder: HistoryRecorder, topic: str) -> None:
        self._recorder = recorder
        self._topic = topic
        self._name = recorder.process
        self._open = 0
        self._guard = threading.Lock()
        self._generation = 0
        self._assigned: set[int] = set()

    def close(self) -> None:
        """Wait for the calls that are in progress, and end the history. Without that, it would not be complete."""
        until = time.monotonic() + _CLOSE_SECONDS
        while self._open and time.monotonic() < until:
            time.sleep(0.01)
        self._recorder.close()

    @contextmanager
    def call(self, *lines: Line) -> Iterator[Callable[..., None]]:
        """Record a call: its lines before, and the lines that the caller passes to the function after the response."""
        with self._guard:
            self._open += 1
        first = self._recorder.invoke(*lines)
        try:
            yield lambda *told: self._recorder.complete(first, *told)
        except BaseException as error:
            self._recorder.complete(first, *[_failed(error)] * len(lines))
            raise
        finally:
            with self._guard:
                self._open -= 1

    # Lines ------------------------------------------------------------------------------------------------------------

    def consume_line(self, request: ConsumeRequest) -> Line:
        return Line(
            kind="invoke",
            op="consume",
            topic=self._topic,
            group=request.group,
            owner=self._name,
            lease_ms=request.lease_ms,
            generation=request.generation,
        )

    def answer_lines(self, group: str, answers: Sequence[LeaseAnswer]) -> list[Line]:
        return [answer_line(self._topic, group, self._name, _said(each)) for each in answers]

    def member_line(self, op: Any, group: str, **more: Any) -> Line:
        return Line(kind="invoke", op=op, topic=self._topic, group=group, owner=self._name, **more)

    # Members ----------------------------------------------------------------------------------------------------------

    def joined(self, found: Membership) -> Line:
        """Return the line of an accepted join, which has the first assignment."""
        self._generation = found.generation
        self._assigned = set(found.assigned.get(self._topic, ()))
        return Line(kind="ok", generation=found.generation, partitions=tuple(sorted(self._assigned)))

    def follow(self, group: str, found: Membership) -> None:
        """Record the partitions that a heartbeat gave or took."""
        assigned = set(found.assigned.get(self._topic, ()))
        if found.generation == self._generation and assigned == self._assigned:
            return
        place = (self._topic, group)
        if gone := self._assigned - assigned:
            self._recorder.revoked(place, self._name, found.generation, sorted(gone))
        if assigned:
            self._recorder.assigned(place, self._name, found.generation, sorted(assigned))
        self._generation, self._assigned = found.generation, assigned

    def removed(self, group: str) -> None:
        """Record that the group has removed this member, so that all its partitions are gone."""
        if self._assigned:
            self._recorder.revoked((self._topic, group), self._name, self._generation, sorted(self._assigned))
        self._assigned = set()


class RecordingTransport(AsyncHttpTransport):
    """The HTTP transport of the client, with a record of its calls."""

    def __init__(self, servers: Sequence[ServerUrl], token: str, calls: CallRecorder) -> None:
        super().__init__(servers, token)
        self._recorded = calls

    async def call(self, operation: Operation[Asked, Found], request: Asked, seconds: float) -> Found:
        made: Awaitable[Found] = super().call(operation, request, seconds)
        calls = self._recorded
        if isinstance(request, JoinRequest):
            with calls.call(calls.member_line("join", request.group)) as told:
                found = await made
                assert isinstance(found, Membership)
                told(calls.joined(found))
        elif isinstance(request, LeaveRequest):
            with calls.call(calls.member_line("leave", request.group)) as told:
                found = await made
                told(Line(kind="ok"))
        elif isinstance(request, CommitRequest):
            found = await self._commit(request, made)
        else:
            found = await self._heartbeat(request, made) if operation is operations.HEARTBEAT else await made
        return found

    async def consume(self, request: ConsumeRequest, seconds: float, repeat: bool = False) -> Consumed:
        calls = self._recorded
        answers = calls.answer_lines(request.group, request.answers)
        with calls.call(calls.consume_line(request), *answers) as told:
            found = await super().consume(request, seconds, repeat)
            refused = found.refusal
            # Messages may have been leased and released.
            leased = Line(kind="info", reason=repr(refused)) if refused else Line(kind="ok", leases=_seen(found.leases))
            told(leased, *map(_answered, found.answered))
        return found

    async def answer(self, request: AnswersRequest, seconds: float) -> list[Answered | LakelogError]:
        calls = self._recorded
        with calls.call(*calls.answer_lines(request.group, request.answers)) as told:
            results = await super().answer(request, seconds)
            told(*map(_answered, results))
        return results

    async def _commit(self, request: CommitRequest, made: Awaitable[Found]) -> Found:
        lines = [
            self._recorded.member_line(
                "commit", request.group, partition=each.partition, offset=each.offset, generation=request.generation
            )
            for each in request.positions
        ]
        with self._recorded.call(*lines) as told:
            found = await made
            told(*[Line(kind="ok", generation=request.generation)] * len(lines))
        return found

    async def _heartbeat(self, request: Any, made: Awaitable[Found]) -> Found:
        try:
            found = await made
        except UnknownMember:
            self._recorded.removed(request.group)
            raise
        assert isinstance(found, Membership)
        self._recorded.follow(request.group, found)
        return found


def recording_keeper(servers: Sequence[ServerUrl], token: str, calls: CallRecorder) -> ThreadLeaseKeeper:
    """Return a keeper whose extensions are recorded. It is a thread, so that 32 programs are not 64 processes."""
    transport = HttpTransport(servers, token)

    def send(holder: LeaseHolder, answers: Sequence[LeaseAnswer], seconds: float) -> list[Answered | LakelogError]:
        with calls.call(*calls.answer_lines(holder.group, answers)) as told:
            results = transport.answer(holder.request(answers), seconds)
            told(*map(_answered, results))
        return results

    return ThreadLeaseKeeper(send)


def _said(answer: LeaseAnswer) -> OwnerAnswer:
    assert answer.token is not None
    offsets = tuple(offset for first, end in answer.ranges for offset in range(first, end))
    return OwnerAnswer(
        verb=answer.verb.value,  # type: ignore[arg-type]
        partition=answer.partition,
        token=answer.token,
        offsets=offsets,
        delay_ms=answer.delay_ms,
        lease_ms=answer.lease_ms,
    )


def _seen(leases: Sequence[LeaseHead]) -> tuple[LeaseSeen, ...]:
    return tuple(
        LeaseSeen(
            lease.partition,
            lease.token,
            lease.expires_ms,
            lease.suspect,
            tuple(
                Got(offset, lease.deliveries.get(offset, 1), lease.failures.get(offset, 0))
                for offset in lease.offsets()
            ),
        )
        for lease in leases
    )


def _answered(result: Answered | LakelogError) -> Line:
    if isinstance(result, Answered):
        return Line(kind="ok", expires_ms=result.expires_ms, dead=tuple(result.dead))
    # A forgotten outcome may belong to an accepted ack.
    is_refused = isinstance(result, REFUSALS) and not isinstance(result, OutcomeForgotten)
    return Line(kind="fail" if is_refused else "info", reason=repr(result)[:300])


def _failed(error: BaseException) -> Line:
    """Return the line of a call that raised. A server refuses an old generation before it does anything."""
    kind: Told = "fail" if isinstance(error, StaleGeneration) else "info"
    return Line(kind=kind, reason=repr(error)[:300])
