"""Converts the answers of one owner in one call to operations, submits them together, and awaits the outcomes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lakelog.coordinator.leasing import operations
from lakelog.engine.leasing.journals import Journals
from lakelog.engine.log.topics import no_partition
from lakelog.errors import InvalidRequest, LakelogError
from lakelog.model.group import MAX_LEASE_MS, MIN_LEASE_MS, Group, GroupTopic
from lakelog.model.lease import MAX_DELAY_MS, ONCE_VERBS, Answered, LeaseAnswer, Verb, kept_reason
from lakelog.model.topic import Topic


@dataclass(slots=True, eq=False)
class PendingAnswers:
    """The answers of one call to one group and topic."""

    journals: Journals
    topic: Topic
    group: Group
    group_topic: GroupTopic
    owner: str
    answers: Sequence[LeaseAnswer]
    generation: int | None = None
    taken: frozenset[bytes] = frozenset()
    """Hashes of values in the answers of which the group has accepted a run."""
    _replies: list[asyncio.Future[operations.Reply] | LakelogError | None] = field(default_factory=list)

    def submit(self) -> None:
        """Submit the answers in order, once."""
        if self._replies:
            return
        for answer in self.answers:
            try:
                if not 0 <= answer.partition < self.topic.partitions:
                    raise no_partition(self.topic, answer.partition)
                journal = self.journals.journal(self.group, self.group_topic, self.topic, answer.partition)
                operation = _operation(self.owner, answer, self.generation, self.taken)
                if isinstance(operation, operations.FinishMessages) and operation.finishes_none:
                    # Not worth a decision, which would be confirmed against the journal.
                    self._replies.append(None)
                else:
                    self._replies.append(self.journals.submit(journal, operation))
            except LakelogError as refusal:
                self._replies.append(refusal)

    async def outcomes(self) -> list[Answered | LakelogError]:
        """Wait until all answers are decided, and return one outcome for each, in order."""
        self.submit()
        waiting = [each for each in self._replies if isinstance(each, asyncio.Future)]
        if waiting:
            await asyncio.wait(waiting)
        return [_answered(each) for each in self._replies]


def _answered(reply: asyncio.Future[operations.Reply] | LakelogError | None) -> Answered | LakelogError:
    if reply is None:
        return Answered()
    if isinstance(reply, LakelogError):
        return reply
    refusal = reply.exception()
    if isinstance(refusal, LakelogError):
        return refusal
    done = reply.result()
    assert isinstance(done, operations.Accepted)
    return Answered(
        expires_ms=done.until_ms,
        dead=done.dead,
        retry_in_ms=done.retry_in_ms,
        max_attempts=done.max_attempts,
        filtered=done.filtered,
    )


_RETURNS: Mapping[Verb, operations.ReturnKind] = {
    Verb.NACK: operations.ReturnKind.NACK,
    Verb.RELEASE: operations.ReturnKind.RELEASE,
    Verb.FAIL: operations.ReturnKind.FATAL_NACK,
}


def _operation(
    owner: str, answer: LeaseAnswer, generation: int | None, taken: frozenset[bytes]
) -> operations.Operation:
    verb, token, ranges = answer.verb, answer.token, answer.ranges
    if verb is Verb.EXTEND:
        check_lease_ms(answer.lease_ms)
        offset = ranges[0][0] if ranges else None
        if token is None and offset is None:
            raise InvalidRequest("An extend needs a token, or an offset of the lease.")
        return operations.ExtendLease(
            owner=owner, token=token, lease_ms=answer.lease_ms, offset=offset, alone=answer.alone, generation=generation
        )
    if not ranges:
        raise InvalidRequest("The answer names no messages; give an offset or offsets.")
    if any(first < 0 or end <= first for first, end in ranges):
        raise InvalidRequest("A range of offsets must be a first and a last offset, with 0 <= first <= last.")
    if verb in _RETURNS:
        if answer.delay_ms is not None and not 0 <= answer.delay_ms <= MAX_DELAY_MS:
            raise InvalidRequest(f"`delay_ms` must be from 0 to {MAX_DELAY_MS} (one week), not {answer.delay_ms}.")
        return operations.ReturnMessages(
            owner=owner,
            token=token,
            ranges=ranges,
            kind=_RETURNS[verb],
            delay_ms=answer.delay_ms,
            reason=kept_reason(answer.reason),
            traceback=answer.traceback,
            generation=generation,
        )
    return operations.FinishMessages(
        owner=owner,
        token=token,
        ranges=ranges,
        discard=verb is Verb.DISCARD,
        through=verb is Verb.ACK_THROUGH,
        generation=generation,
        once=answer.value_hashes() if verb in ONCE_VERBS else {},
        taken=taken,
        only_taken=verb is Verb.FILTER_REPEATS,
    )


def check_lease_ms(lease_ms: int) -> None:
    if not MIN_LEASE_MS <= lease_ms <= MAX_LEASE_MS:
        raise InvalidRequest(f"`lease_ms` must be from {MIN_LEASE_MS} to {MAX_LEASE_MS}.")
