"""Takes leases for one topic of a group: joins the group, requests messages with retries, and gives leases back.

Workers and pull consumers use it. It does not decide how many messages to request (`polling` does), nor what happens
with them.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Callable, Sequence

from msgspec.structs import asdict, replace

from lakelog.client import processes
from lakelog.client._async.group_member import AsyncGroupMember
from lakelog.client._async.transport import AsyncTransport
from lakelog.client.retrying import Backoff, CallRetryPolicy, Outage, is_passing
from lakelog.client.values import Consumed
from lakelog.client.worker.answers import AnswerBatch, AnswerSender
from lakelog.client.worker.deadlines import Deadlines
from lakelog.client.worker.lease_extension import LeaseHolder
from lakelog.client.worker.lease_keeper import LeaseKeeper
from lakelog.client.worker.leased_message import WorkerLease
from lakelog.client.worker.options import GroupSource
from lakelog.client.worker.polling import Poll, Poller
from lakelog.errors import LakelogError, NoPosition, StaleGeneration, UnknownMember
from lakelog.model.group import GroupKind, GroupSettings, Order
from lakelog.model.lease import Answered, ConsumeRequest, LeaseAnswer, Verb
from lakelog.model.membership import HeartbeatRequest, JoinRequest, LeaveRequest, Membership
from lakelog.model.progress import GroupRequest
from lakelog.wire.leases import LeaseHead
from lakelog.wire.operations import groups as operations

log = processes.log

WAIT_MS = 20_000
_LONG_PAUSE_SECONDS = 5.0


class LeaseTaker:
    """A member of a lease group that takes leases, in one event loop.

    Args:
        source: The topic, the group and the options.
        transport: The transport of the event loop.
        keeper: Extends the leases.
        policy: The time limit of a call.
        isolates: Whether the owner runs a suspect alone in its process, and confirms it.
        changed: Called after each answer that is held back.
    """

    def __init__(
        self,
        source: GroupSource,
        transport: AsyncTransport,
        keeper: LeaseKeeper,
        policy: CallRetryPolicy,
        *,
        isolates: bool,
        changed: Callable[[], None],
    ) -> None:
        self.source = source
        self.owner = processes.unique_name()
        self.order = Order.KEY
        self.keeps_dead_letters = True
        self.leases: set[WorkerLease] = set()
        """The leases with messages that have no answer yet."""
        self.sender = AnswerSender(self._send, changed)
        self.checks = AnswerSender(self._send)
        """Sends checks for repeats of a value. They never wait for a call for messages."""
        self.member = AsyncGroupMember(source.name, self._join, self._heartbeat, self._leave)
        self._transport = transport
        self._keeper = keeper
        self._policy = policy
        self._holder = LeaseHolder(source.topic, source.group, self.owner)
        self._skipped: int | None = None
        """The number of messages before the group's start, if the first join created the group."""
        self._request = self._first_request(isolates)
        self._asking: ConsumeRequest | None = None
        self._stop_by = float("inf")
        self._outage = Outage(source.name)

    # Membership -------------------------------------------------------------------------------------------------------

    async def start(self, *, waits_for_keeper: bool = True) -> None:
        """Join the group, and wait until leases can be kept. Raise an error if the server refuses the join."""
        await self.member.join()
        self._tell_start()
        if waits_for_keeper:
            await self._keeper.ready()

    async def keep_alive(self) -> None:
        """Send heartbeats until `leave`."""
        await self.member.keep_alive(self.source.options.heartbeat_seconds)

    async def leave(self, deadline: float) -> None:
        """Leave the group before that time of the monotonic clock."""
        self._stop_by = deadline
        await self.member.leave()

    async def _join(self) -> Membership:
        """Join the group, and wait for a server if none responds. Raise an error if the server refuses."""
        options = self.source.options
        request = JoinRequest(
            group=self.source.group,
            topics=(self.source.topic,),
            member_id=self.owner,
            session_ms=options.session_ms,
            kind=GroupKind.LEASE,
            **asdict(options.group_settings()),
        )
        backoff = Backoff()
        while True:
            try:
                membership = await self._transport.call(operations.JOIN, request, self._policy.try_seconds)
                self._skipped = membership.skipped_at_start.get(self.source.topic, self._skipped)
                settings = membership.settings or await self._described_settings()
                self.order = settings.order
                self.keeps_dead_letters = settings.in_topic(self.source.topic).dead_letter
                self._outage.ended()
                return membership
            except LakelogError as error:
                if not is_passing(error):
                    raise
                self._outage.failed(error)
                await asyncio.sleep(backoff.next(error))

    async def _described_settings(self) -> GroupSettings:
        """Return the settings of the group from a server of an older version, whose reply to a join lacks them."""
        request = GroupRequest(group=self.source.group)
        return (await self._transport.call(operations.DESCRIBE_GROUP, request, self._policy.try_seconds)).settings

    async def _heartbeat(self, member: Membership) -> Membership:
        request = HeartbeatRequest(group=self.source.group, member_id=member.member_id, generation=member.generation)
        return await self._transport.call(operations.HEARTBEAT, request, self._policy.try_seconds)

    async def _leave(self) -> None:
        seconds = min(max(0.5, self._stop_by - time.monotonic()), self._policy.try_seconds)
        request = LeaveRequest(group=self.source.group, member_id=self.owner)
        await self._transport.call(operations.LEAVE, request, seconds)

    def _tell_start(self) -> None:
        """Log where the group starts if that may surprise: messages are skipped, or `start_from` has no effect."""
        topic, group, skipped = self.source.topic, self.source.group, self._skipped
        stated = self.source.options.start_from is not None
        if skipped is None and stated:
            log.info(
                "Group '%s' already reads topic '%s' and resumes from its committed offsets; "
                "start_from applies only to new groups.",
                group,
                topic,
            )
        elif skipped and not stated:
            log.warning(
                "Group '%s' is new to topic '%s' and starts at its end: %s skipped. To process them, run "
                "`lakelog groups seek %s %s --to earliest`. To start new groups at the beginning, pass "
                'start_from="earliest".',
                group,
                topic,
                "1 existing message is" if skipped == 1 else f"{skipped:,} existing messages are",
                group,
                topic,
            )

    # Leases -----------------------------------------------------------------------------------------------------------

    async def take_all(self, poller: Poller, take: Callable[[Consumed], int]) -> None:
        """Request messages whenever the poller says so. `take` gets the leases and returns the number of messages."""
        try:
            while True:
                poll = await poller.next()
                self._asking = self._next_request(poll)
                found = await self._consume(self._asking, poll.answers)
                self._asking = None
                self.member.advance(found.head.generation)
                poller.has_more = 2 * take(found) >= poll.count
        finally:
            poller.close()

    def hold(self, head: LeaseHead, deadlines: Deadlines) -> WorkerLease:
        """Return a lease that the keeper keeps from its next flush on."""
        options = self.source.options
        lease = WorkerLease(
            head, options.lease_ms, self.sender, options.timeout_seconds, deadlines.moved, self.source.group
        )
        lease.until = time.monotonic() + options.timeout_seconds
        lease.kept = self._keeper.keep(self._holder, lease.partition, lease.token, options.lease_ms / 1000, lease.until)
        return lease

    def drop_answered(self, lease: WorkerLease, offsets: Sequence[int]) -> None:
        """Record that these messages have their answer. A lease without open messages is not kept any longer."""
        lease.open.difference_update(offsets)
        if not lease.open and lease in self.leases:
            self.leases.discard(lease)
            self._keeper.drop([lease.kept])

    async def update_keeper(self, deadlines: Deadlines) -> None:
        """Tell the keeper at intervals how long to keep the leases, also while no message is taken or answered."""
        while True:
            await asyncio.sleep(self.source.options.lease_ms / 3000)
            for lease in self.leases:
                deadlines.update_keeper(lease)
            self._keeper.flush()

    async def return_unseen(self) -> None:
        """Give back the leases of a call that was running at the stop: the server may have granted them."""
        if self._asking is None:
            return
        request = replace(self._asking, wait_ms=0, max_messages=1)
        try:
            found = await self._transport.consume(request, self._policy.try_seconds, repeat=True)
        except LakelogError:
            return
        self.give_back(found)

    @property
    def is_asking(self) -> bool:
        """True while a call for messages runs."""
        return self._asking is not None

    def give_back(self, found: Consumed) -> None:
        """Release leases that were granted too late to be used."""
        for head in found.leases:
            offsets = tuple(sorted(head.offsets()))
            self.sender.submit(
                LeaseAnswer(verb=Verb.RELEASE, partition=head.partition, token=head.token, offsets=offsets)
            )

    def _first_request(self, isolates: bool) -> ConsumeRequest:
        """Return the part of all requests that stays the same."""
        options = self.source.options
        return ConsumeRequest(
            topic=self.source.topic,
            group=self.source.group,
            owner=self.owner,
            lease_ms=options.lease_ms,
            isolates=isolates,
            **asdict(options.group_settings()),
        )

    def _next_request(self, poll: Poll) -> ConsumeRequest:
        member = self.member.membership
        return replace(
            self._request,
            request_id=uuid.uuid4().hex,
            max_messages=poll.count,
            wait_ms=WAIT_MS if poll.waits else 0,
            member_id=member.member_id if member else None,
            generation=member.generation if member else None,
        )

    async def _consume(self, request: ConsumeRequest, answers: AnswerBatch | None) -> Consumed:
        """Request messages until there is a response. A repeat with the same request id returns the same leases.

        The answers go with the first attempt only, and separately if that fails.
        """
        backoff = Backoff()
        repeat = False
        while True:
            try:
                found = await self._call(request, answers, repeat)
                self._outage.ended()
                return found
            except (StaleGeneration, UnknownMember) as error:
                # A server refuses an old generation before it leases anything, so there is no lease to search for.
                repeat = repeat or isinstance(error, UnknownMember)
                with contextlib.suppress(LakelogError):
                    await self.member.heartbeat()
                if self.member.membership is not None:
                    request = replace(request, generation=self.member.membership.generation)
                await asyncio.sleep(backoff.next() if backoff.failed else 0)
                backoff.failed += 1
            except LakelogError as error:
                self._outage.failed(error)
                pause = backoff.next(error)
                repeat = True
                lasting = not is_passing(error) and not isinstance(error, NoPosition)
                await asyncio.sleep(max(pause, _LONG_PAUSE_SECONDS) if lasting else pause)
            self._asking, answers = request, None

    async def _call(self, request: ConsumeRequest, answers: AnswerBatch | None, repeat: bool) -> Consumed:
        if answers is not None:
            request = replace(request, answers=tuple(answers.answers))
        seconds = request.wait_ms / 1000 + self._policy.try_seconds
        try:
            found = await self._transport.consume(request, seconds, repeat)
        except BaseException:
            if answers is not None:
                self.sender.put_back(answers)
            self.sender.send_directly()
            raise
        if answers is not None:
            self.sender.settle(answers, found.answered)
        if found.refusal is not None:
            # The answers count, but no messages could be leased.
            self.sender.send_directly()
            raise found.refusal
        return found

    async def _send(self, answers: Sequence[LeaseAnswer]) -> list[Answered | LakelogError]:
        return await self._transport.answer(self._holder.request(answers), self._policy.try_seconds)
