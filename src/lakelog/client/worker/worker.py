"""The worker of one subscription: a group member that takes leases, runs them, and waits through outages.

`lease_runner` runs the leases; `pool` holds the workers of a client.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Sequence

from msgspec.structs import asdict, replace

from lakelog.client import processes
from lakelog.client._async.group_member import AsyncGroupMember
from lakelog.client._async.transport import AsyncTransport
from lakelog.client.reading.decoding import leased_messages
from lakelog.client.reading.messages import ReceivedMessage
from lakelog.client.retrying import Backoff, CallRetryPolicy, Outage, is_passing
from lakelog.client.values import Consumed
from lakelog.client.worker.answers import AnswerBatch, AnswerSender
from lakelog.client.worker.lease_extension import LeaseHolder
from lakelog.client.worker.lease_keeper import WorkerResources
from lakelog.client.worker.lease_runner import LeaseRunner
from lakelog.client.worker.leased_message import LeasedMessage, WorkerLease
from lakelog.client.worker.options import Subscription
from lakelog.client.worker.polling import Poll, Poller
from lakelog.errors import LakelogError, NoPosition, StaleGeneration, UnknownMember
from lakelog.model.group import GroupKind, GroupSettings, Order
from lakelog.model.lease import Answered, ConsumeRequest, LeaseAnswer, Verb
from lakelog.model.membership import HeartbeatRequest, JoinRequest, LeaveRequest, Membership
from lakelog.model.partitioner import murmur2
from lakelog.model.progress import GroupRequest
from lakelog.wire.leases import LeaseHead
from lakelog.wire.operations import groups as operations

log = processes.log

WAIT_MS = 20_000
_LONG_PAUSE_SECONDS = 5.0


class SubscriptionWorker:
    """Runs one subscription, in one event loop."""

    def __init__(
        self, subscription: Subscription, transport: AsyncTransport, resources: WorkerResources, policy: CallRetryPolicy
    ) -> None:
        self.subscription = subscription
        self.owner = processes.unique_name()
        self._transport = transport
        self._resources = resources
        self._policy = policy
        self._holder = LeaseHolder(subscription.topic, subscription.group, self.owner)
        self._sender = AnswerSender(self._send, self._changed)
        self._runner = LeaseRunner(subscription, self._sender, resources, self._changed)
        self._poller = Poller(self._runner, self._sender, subscription.options.batch_size)
        self._member = AsyncGroupMember(subscription.name, self._join, self._heartbeat, self._leave)
        self._skipped: int | None = None
        """The number of messages before the group's start, if this worker's first join created the group."""
        self._order = Order.KEY
        self._request = self._first_request()
        self._asking: ConsumeRequest | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._stop_by = 0.0
        self._outage = Outage(subscription.name)
        self.counts = self._runner.counts

    async def start(self) -> None:
        """Join the group and start to work. Raise an error if the server refuses the join."""
        await self._member.join()
        self._tell_start()
        await self._resources.keeper.ready()
        self._tasks = [
            asyncio.create_task(self._take_all(), name=f"lakelog-take-{self.subscription.name}"),
            asyncio.create_task(
                self._member.keep_alive(self.subscription.options.heartbeat_seconds),
                name=f"lakelog-heartbeat-{self.subscription.name}",
            ),
            asyncio.create_task(self._update_keeper(), name=f"lakelog-leases-{self.subscription.name}"),
        ]
        for task in self._tasks:
            task.add_done_callback(self._complain)
        log.info("%s: worker started: member %s, %s", self.subscription.name, self.owner, self._runner.prefetch)

    async def stop(self, seconds: float) -> None:
        """Finish running handlers, give back all other messages, and leave the group, within that many seconds."""
        deadline = self._stop_by = time.monotonic() + seconds
        self._runner.stopping = True
        if self._tasks:
            taking, *others = self._tasks
            await _cancelled(taking)
            self._sender.give_up_after(seconds)
            drained = self._runner.drain(max(0.0, deadline - time.monotonic() - 1.0))
            await asyncio.gather(self._return_unseen(), drained)
            await self._sender.flush()
            for task in others:
                await _cancelled(task)
        await self._member.leave()
        self._runner.failure_log.close()
        if self._tasks:
            log.info("%s: worker stopped: %s", self.subscription.name, _summary(self._runner))

    async def failed(self) -> None:
        """Wait until the worker fails, and raise its error."""
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            if not task.cancelled():
                task.result()

    def _complain(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s: worker failed", self.subscription.name, exc_info=error)

    # Membership -------------------------------------------------------------------------------------------------------

    async def _join(self) -> Membership:
        """Join the group, and wait for a server if none responds. Raise an error if the server refuses."""
        options = self.subscription.options
        request = JoinRequest(
            group=self.subscription.group,
            topics=(self.subscription.topic,),
            member_id=self.owner,
            session_ms=options.session_ms,
            kind=GroupKind.LEASE,
            **asdict(options.group_settings()),
        )
        backoff = Backoff()
        while True:
            try:
                membership = await self._transport.call(operations.JOIN, request, self._policy.try_seconds)
                self._skipped = membership.skipped_at_start.get(self.subscription.topic, self._skipped)
                settings = membership.settings or await self._described_settings()
                self._order = settings.order
                self._runner.failure_log.keeps_dead_letters = settings.dead_letter
                self._outage.ended()
                return membership
            except LakelogError as error:
                if not is_passing(error):
                    raise
                self._outage.failed(error)
                await asyncio.sleep(backoff.next(error))

    async def _described_settings(self) -> GroupSettings:
        """Return the settings of the group from a server of an older version, whose reply to a join lacks them."""
        request = GroupRequest(group=self.subscription.group)
        return (await self._transport.call(operations.DESCRIBE_GROUP, request, self._policy.try_seconds)).settings

    async def _heartbeat(self, member: Membership) -> Membership:
        request = HeartbeatRequest(
            group=self.subscription.group, member_id=member.member_id, generation=member.generation
        )
        return await self._transport.call(operations.HEARTBEAT, request, self._policy.try_seconds)

    async def _leave(self) -> None:
        seconds = min(max(0.5, self._stop_by - time.monotonic()), self._policy.try_seconds)
        request = LeaveRequest(group=self.subscription.group, member_id=self.owner)
        await self._transport.call(operations.LEAVE, request, seconds)

    def _tell_start(self) -> None:
        """Log where the group starts if that may surprise: messages are skipped, or `start_from` has no effect."""
        topic, group, skipped = self.subscription.topic, self.subscription.group, self._skipped
        stated = self.subscription.options.start_from is not None
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

    async def _update_keeper(self) -> None:
        """Tell the keeper at intervals how long to keep the leases, also while no handler starts or ends."""
        while True:
            await asyncio.sleep(self.subscription.options.lease_ms / 3000)
            for lease in self._runner.leases:
                self._runner.deadlines.update_keeper(lease)
            self._resources.keeper.flush()

    # Leases -----------------------------------------------------------------------------------------------------------

    def _changed(self) -> None:
        self._poller.look()

    async def _take_all(self) -> None:
        try:
            while True:
                poll = await self._poller.next()
                self._asking = self._next_request(poll)
                found = await self._consume(self._asking, poll.answers)
                self._asking = None
                self._poller.has_more = 2 * self._take(found) >= poll.count
        finally:
            self._poller.close()

    def _first_request(self) -> ConsumeRequest:
        """Return the part of all requests that stays the same."""
        options = self.subscription.options
        return ConsumeRequest(
            topic=self.subscription.topic,
            group=self.subscription.group,
            owner=self.owner,
            lease_ms=options.lease_ms,
            isolates=True,
            **asdict(options.group_settings()),
        )

    def _next_request(self, poll: Poll) -> ConsumeRequest:
        member = self._member.membership
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
            except (StaleGeneration, UnknownMember):
                with contextlib.suppress(LakelogError):
                    await self._member.heartbeat()
                if self._member.membership is not None:
                    request = replace(request, generation=self._member.membership.generation)
                await asyncio.sleep(backoff.next() if backoff.failed else 0)
                backoff.failed += 1
            except LakelogError as error:
                self._outage.failed(error)
                pause = backoff.next(error)
                lasting = not is_passing(error) and not isinstance(error, NoPosition)
                await asyncio.sleep(max(pause, _LONG_PAUSE_SECONDS) if lasting else pause)
            self._asking = request
            repeat, answers = True, None

    async def _call(self, request: ConsumeRequest, answers: AnswerBatch | None, repeat: bool) -> Consumed:
        if answers is not None:
            request = replace(request, answers=tuple(answers.answers))
        seconds = request.wait_ms / 1000 + self._policy.try_seconds
        try:
            found = await self._transport.consume(request, seconds, repeat)
        except BaseException:
            if answers is not None:
                self._sender.put_back(answers)
            self._sender.send_directly()
            raise
        if answers is not None:
            self._sender.settle(answers, found.answered)
        if found.refusal is not None:
            # The answers count, but no messages could be leased.
            self._sender.send_directly()
            raise found.refusal
        return found

    def _take(self, found: Consumed) -> int:
        """Start to run the messages. Return their number."""
        self._member.advance(found.head.generation)
        payloads = iter(found.payloads)
        taken: list[tuple[WorkerLease, list[list[LeasedMessage]]]] = []
        count = 0
        for head in found.leases:
            lease = self._worker_lease(head)
            messages = self._messages(found, head, [next(payloads) for _ in head.pieces])
            count += len(messages)
            taken.append((lease, _chains([LeasedMessage(message, lease) for message in messages], self._order)))
        # Before any handler starts: a handler may block everything else.
        self._resources.keeper.flush()
        for lease, chains in taken:
            self._runner.begin(lease, chains)
        return count

    def _worker_lease(self, head: LeaseHead) -> WorkerLease:
        options = self.subscription.options
        lease = WorkerLease(head, options.lease_ms, self._sender, options.timeout_seconds, self._runner.deadlines.moved)
        lease.until = time.monotonic() + options.timeout_seconds
        lease.kept = self._resources.keeper.keep(
            self._holder, lease.partition, lease.token, options.lease_ms / 1000, lease.until
        )
        return lease

    def _messages(
        self, found: Consumed, head: LeaseHead, payloads: Sequence[bytes | memoryview]
    ) -> list[ReceivedMessage[object]]:
        return leased_messages(self.subscription.topic, self.subscription.codec, found.head.incarnation, head, payloads)

    async def _return_unseen(self) -> None:
        """Give back the leases of a call that was running at the stop: the server may have granted them."""
        if self._asking is None:
            return
        request = replace(self._asking, wait_ms=0, max_messages=1)
        try:
            found = await self._transport.consume(request, self._policy.try_seconds, repeat=True)
        except LakelogError:
            return
        for head in found.leases:
            offsets = tuple(sorted(head.offsets()))
            self._sender.submit(
                LeaseAnswer(verb=Verb.RELEASE, partition=head.partition, token=head.token, offsets=offsets)
            )

    async def _send(self, answers: Sequence[LeaseAnswer]) -> list[Answered | LakelogError]:
        return await self._transport.answer(self._holder.request(answers), self._policy.try_seconds)


def _chains(messages: Sequence[LeasedMessage], order: Order) -> list[list[LeasedMessage]]:
    """Group the messages into chains, each of which runs in order."""
    if order is Order.PARTITION:
        return [list(messages)]
    if order is Order.NONE:
        return [[leased] for leased in messages]
    chains: dict[object, list[LeasedMessage]] = {}
    for leased in messages:
        key = leased.message.key
        # By the same hash as the server: it treats two keys with the same hash as one key, and expects them in order.
        chains.setdefault(leased if key is None else murmur2(key), []).append(leased)
    return list(chains.values())


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


def _summary(runner: LeaseRunner) -> str:
    counts = runner.counts
    return f"{counts.acked} acked, {counts.failed} failed, {counts.dead} dead-lettered, {counts.released} released"
