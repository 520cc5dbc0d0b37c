"""The worker of one subscription: a member of the group that takes leases, runs them, and goes on through outages.

What becomes of a lease is in `lease_runner`; which workers there are is in `crew`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace

from lakelog.batches import murmur2
from lakelog.client import processes
from lakelog.client._async.transport import AsyncTransport
from lakelog.client.backoff import Pauses, Policy, is_passing
from lakelog.client.group_values import Answer, Answered, Consumed, ConsumeWish, JoinWish, Membership, Payload
from lakelog.client.messages import ReceivedMessage, leased_messages
from lakelog.client.positions import seconds_of
from lakelog.client.work.answers import Answerer
from lakelog.client.work.extending import Source
from lakelog.client.work.held import Hand, Held
from lakelog.client.work.lease_runner import LeaseRunner, Tools
from lakelog.client.work.options import Subscription
from lakelog.errors import LakelogError, NoPosition, StaleGeneration, UnknownMember
from lakelog.model.group import Order
from lakelog.wire.leases import LeaseHead

log = processes.log

WAIT_SECONDS = 20.0
_LONG_PAUSE_SECONDS = 5.0


class Worker:
    """Belongs to the event loop that runs it."""

    def __init__(self, subscription: Subscription, transport: AsyncTransport, tools: Tools, policy: Policy) -> None:
        self.subscription = subscription
        self.owner = _owner()
        self._transport = transport
        self._tools = tools
        self._policy = policy
        self._source = Source(subscription.topic, subscription.group, self.owner)
        self._answerer = Answerer(self._send)
        self._runner = LeaseRunner(subscription, self._answerer, tools)
        self._membership: Membership | None = None
        self._order = Order.KEY
        self._asking: ConsumeWish | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.counts = self._runner.counts

    async def start(self) -> None:
        """Joins the group; what the server refuses now is raised. Then it works until `stop`."""
        await self._join()
        await self._tools.keeper.ready()
        self._tasks = [
            asyncio.create_task(self._take_all(), name=f"lakelog-take-{self.subscription.name}"),
            asyncio.create_task(self._beat_all(), name=f"lakelog-heartbeat-{self.subscription.name}"),
        ]
        for task in self._tasks:
            task.add_done_callback(self._complain)
        log.info(
            "%s: started as %s, %d at a time", self.subscription.name, self.owner, self.subscription.options.concurrency
        )

    async def stop(self, seconds: float) -> None:
        """Takes no more, finishes what runs, gives back the rest, and leaves the group: within so many seconds."""
        deadline = time.monotonic() + seconds
        self._runner.stopping = True
        if self._tasks:
            taking, beating = self._tasks
            await _cancelled(taking)
            self._answerer.give_up_after(seconds)
            drained = self._runner.drain(max(0.0, deadline - time.monotonic() - 1.0))
            await asyncio.gather(self._return_unseen(), drained)
            await self._answerer.flush()
            await _cancelled(beating)
        await self._leave(max(0.5, deadline - time.monotonic()))
        log.info("%s: stopped, %s", self.subscription.name, _summary(self._runner))

    async def failed(self) -> None:
        """Returns when the worker has come to an end by itself, which it should not; raises why."""
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            if not task.cancelled():
                task.result()

    def _complain(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s: came to an end", self.subscription.name, exc_info=error)

    # Membership -------------------------------------------------------------------------------------------------------

    async def _join(self) -> None:
        options = self.subscription.options
        wish = JoinWish(
            group=self.subscription.group,
            topics=(self.subscription.topic,),
            member_id=self.owner,
            session_ms=options.session_ms,
            client_host=socket.gethostname(),
            wish=options.wish(),
        )
        groups = self._transport.groups
        pauses = Pauses()
        while True:
            try:
                self._membership = await groups.join(wish, self._policy.try_seconds)
                described = await groups.describe(self.subscription.group, self._policy.try_seconds)
                self._order = described.group.settings.order
                return
            except LakelogError as error:
                if not is_passing(error):
                    raise
                if pauses.failed == 0:
                    log.warning("%s: cannot join yet: %s", self.subscription.name, error.detail)
                await asyncio.sleep(pauses.next(error))

    async def _beat_all(self) -> None:
        options = self.subscription.options
        last_refreshed = 0.0
        while True:
            member = self._membership
            every = seconds_of(options.heartbeat) if options.heartbeat is not None else _interval(member)
            await asyncio.sleep(min(every, options.lease_ms / 3000))
            for hand in self._runner.hands:
                self._runner.prolonged(hand)
            self._tools.keeper.flush()
            if time.monotonic() - last_refreshed >= every * 0.9:
                last_refreshed = time.monotonic()
                with contextlib.suppress(LakelogError):
                    await self._beat()

    async def _beat(self) -> None:
        member = self._membership
        if member is None:
            return
        try:
            self._membership = await self._transport.groups.heartbeat(
                self.subscription.group, member.member_id, member.generation, self._policy.try_seconds
            )
        except UnknownMember:
            log.warning("%s: the group has lost this member; joining again", self.subscription.name)
            await self._join()

    async def _leave(self, seconds: float) -> None:
        if self._membership is not None:
            # Its session would end by itself.
            with contextlib.suppress(LakelogError):
                await self._transport.groups.leave(
                    self.subscription.group, self.owner, min(seconds, self._policy.try_seconds)
                )

    # Leases -----------------------------------------------------------------------------------------------------------

    async def _take_all(self) -> None:
        runner = self._runner
        while True:
            runner.freed.clear()
            if not runner.room:
                await runner.freed.wait()
                continue
            self._asking = self._wish(min(runner.room, self.subscription.options.batch_size))
            found = await self._consume(self._asking)
            self._asking = None
            self._take(found)

    def _wish(self, count: int) -> ConsumeWish:
        member, options = self._membership, self.subscription.options
        return ConsumeWish(
            topic=self.subscription.topic,
            group=self.subscription.group,
            owner=self.owner,
            request_id=uuid.uuid4().hex,
            max_messages=count,
            lease_ms=options.lease_ms,
            wait_seconds=WAIT_SECONDS,
            member_id=member.member_id if member else None,
            generation=member.generation if member else None,
            isolates=True,
            wish=options.wish(),
        )

    async def _consume(self, wish: ConsumeWish) -> Consumed:
        """Asks until there is an answer, with the same request id: leases whose answer was lost come again."""
        pauses = Pauses()
        while True:
            try:
                seconds = WAIT_SECONDS + self._policy.try_seconds
                found = await self._transport.groups.consume(wish, seconds)
                if pauses.failed > 1:
                    log.info("%s: goes on", self.subscription.name)
                return found
            except (StaleGeneration, UnknownMember):
                with contextlib.suppress(LakelogError):
                    await self._beat()
                if self._membership is not None:
                    wish = replace(wish, generation=self._membership.generation)
                await asyncio.sleep(pauses.next() if pauses.failed else 0)
                pauses.failed += 1
            except LakelogError as error:
                if pauses.failed == 1:
                    log.warning("%s: waits: %s", self.subscription.name, error.detail)
                pause = pauses.next(error)
                lasting = not is_passing(error) and not isinstance(error, NoPosition)
                await asyncio.sleep(max(pause, _LONG_PAUSE_SECONDS) if lasting else pause)
            self._asking = wish

    def _take(self, found: Consumed) -> None:
        member = self._membership
        if member is not None and found.head.generation is not None and found.head.generation > member.generation:
            self._membership = replace(member, generation=found.head.generation)
        payloads = iter(found.payloads)
        taken: list[tuple[Hand, list[list[Held]]]] = []
        for lease in found.leases:
            hand = self._hand(lease)
            messages = self._messages(found, lease, [next(payloads) for _ in lease.pieces])
            helds = [self._held(hand, message) for message in messages]
            taken.append((hand, _chains(helds, self._order)))
        # Before any of them runs: it may let nothing else run.
        self._tools.keeper.flush()
        for hand, chains in taken:
            self._runner.begin(hand, chains)

    def _hand(self, lease: LeaseHead) -> Hand:
        options = self.subscription.options
        hand = Hand(lease, options.lease_ms)
        hand.until = time.monotonic() + options.timeout_seconds
        hand.kept = self._tools.keeper.keep(
            self._source, hand.partition, hand.token, options.lease_ms / 1000, hand.until
        )
        return hand

    def _messages(
        self, found: Consumed, lease: LeaseHead, payloads: Sequence[Payload]
    ) -> list[ReceivedMessage[object]]:
        return leased_messages(
            self.subscription.topic, self.subscription.codec, found.head.incarnation, lease, payloads
        )

    def _held(self, hand: Hand, message: ReceivedMessage[object]) -> Held:
        timeout = self.subscription.options.timeout_seconds
        return Held(message, hand, self._answerer, timeout, self._runner.prolonged)

    async def _return_unseen(self) -> None:
        """Gives back the leases of a call that was under way when it was time to stop: they may have been granted."""
        if self._asking is None:
            return
        wish = replace(self._asking, wait_seconds=0.0, max_messages=1)
        try:
            found = await self._transport.groups.consume(wish, self._policy.try_seconds)
        except LakelogError:
            return
        for lease in found.leases:
            offsets = tuple(sorted(lease.offsets()))
            self._answerer.say(Answer(verb="release", partition=lease.partition, token=lease.token, offsets=offsets))

    async def _send(self, answers: Sequence[Answer]) -> list[Answered | LakelogError]:
        source = self._source
        return await self._transport.groups.answer(
            source.topic, source.group, source.owner, answers, self._policy.try_seconds
        )


def _chains(helds: Sequence[Held], order: Order) -> list[list[Held]]:
    """What has to run one after another."""
    if order is Order.PARTITION:
        return [list(helds)]
    if order is Order.NONE:
        return [[held] for held in helds]
    chains: dict[object, list[Held]] = {}
    for held in helds:
        key = held.message.key
        # By the same hash as the server's: to it, two keys that share one are the same, and it wants them in order.
        chains.setdefault(held if key is None else murmur2(key), []).append(held)
    return list(chains.values())


def _owner() -> str:
    host = re.sub(r"[^a-z0-9.-]", "-", socket.gethostname().lower())[:80] or "host"
    return f"{host}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


def _interval(member: Membership | None) -> float:
    return member.heartbeat_ms / 1000 if member is not None else 10.0


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


def _summary(runner: LeaseRunner) -> str:
    counts = runner.counts
    return f"{counts.acked} acked, {counts.failed} failed, {counts.dead} dead letters, {counts.released} given back"
