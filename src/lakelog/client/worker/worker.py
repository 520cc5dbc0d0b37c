"""The worker of one subscription: takes the leases of a group member and runs their messages.

`lease_taker` requests the messages, `lease_runner` runs them; `pool` holds the workers of a client.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from lakelog.client import processes
from lakelog.client._async.transport import AsyncTransport
from lakelog.client.reading.decoding import leased_messages
from lakelog.client.retrying import CallRetryPolicy
from lakelog.client.values import Consumed
from lakelog.client.worker.answers import AnswerSender
from lakelog.client.worker.batch_runner import BatchRunner
from lakelog.client.worker.batch_work import BatchedMessage
from lakelog.client.worker.lease_keeper import WorkerResources
from lakelog.client.worker.lease_runner import LeaseRunner
from lakelog.client.worker.lease_taker import LeaseTaker
from lakelog.client.worker.leased_message import LeasedMessage, WorkerLease
from lakelog.client.worker.metrics import SubscriptionMetrics
from lakelog.client.worker.options import Subscription
from lakelog.client.worker.polling import Holder, Poller
from lakelog.model.group import Order
from lakelog.model.partitioner import murmur2

log = processes.log


class SubscriptionWorker:
    """Runs one subscription, in one event loop."""

    def __init__(
        self,
        subscription: Subscription,
        transport: AsyncTransport,
        resources: WorkerResources,
        policy: CallRetryPolicy,
        new_poller: Callable[[Holder, AnswerSender, int], Poller] = Poller,
    ) -> None:
        self.subscription = subscription
        self._resources = resources
        self._taker = LeaseTaker(
            subscription, transport, resources.keeper, policy, isolates=True, changed=self._changed
        )
        is_single = subscription.options.batch is None
        runner: type[LeaseRunner | BatchRunner] = LeaseRunner if is_single else BatchRunner
        self._runner = runner(subscription, self._taker, resources, self._changed)
        self._message_class = LeasedMessage if is_single else BatchedMessage
        self._poller = new_poller(self._runner, self._taker.sender, subscription.options.most_per_call)
        self._tasks: list[asyncio.Task[None]] = []
        self.counts = self._runner.counts

    @property
    def metrics(self) -> SubscriptionMetrics:
        return SubscriptionMetrics(
            topic=self.subscription.topic,
            group=self.subscription.group,
            counts=self.counts,
            durations=self._runner.deadlines.durations,
        )

    async def start(self) -> None:
        """Join the group and start to work. Raise an error if the server refuses the join."""
        taker, runner, name = self._taker, self._runner, self.subscription.name
        await taker.start()
        self._tasks = [
            asyncio.create_task(taker.take_all(self._poller, self._take), name=f"lakelog-take-{name}"),
            asyncio.create_task(taker.keep_alive(), name=f"lakelog-heartbeat-{name}"),
            asyncio.create_task(taker.update_keeper(runner.deadlines), name=f"lakelog-leases-{name}"),
        ]
        for task in self._tasks:
            task.add_done_callback(self._complain)
        log.info("%s: worker started: member %s, %s", name, taker.owner, runner.prefetch)

    async def stop(self, seconds: float) -> None:
        """Finish running handlers, give back all other messages, and leave the group, within that many seconds."""
        deadline = time.monotonic() + seconds
        self._runner.stopping = True
        if self._tasks:
            taking, *others = self._tasks
            await _cancelled(taking)
            self._taker.sender.give_up_after(seconds)
            drained = self._runner.drain(max(0.0, deadline - time.monotonic() - 1.0))
            await asyncio.gather(self._taker.return_unseen(), drained)
            await self._taker.sender.flush()
            for task in others:
                await _cancelled(task)
        await self._taker.leave(deadline)
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

    def _changed(self) -> None:
        self._poller.look()

    def _take(self, found: Consumed) -> int:
        """Start to run the messages. Return their number."""
        self._runner.failure_log.keeps_dead_letters = self._taker.keeps_dead_letters
        payloads = iter(found.payloads)
        taken: list[tuple[WorkerLease, list[list[LeasedMessage]]]] = []
        count = 0
        place = (self.subscription.topic, self.subscription.codec, found.head.incarnation)
        for head in found.leases:
            lease = self._taker.hold(head, self._runner.deadlines)
            messages = leased_messages(*place, head, [next(payloads) for _ in head.pieces])
            count += len(messages)
            leased = [self._message_class(message, lease) for message in messages]
            taken.append((lease, _chains(leased, self._taker.order)))
        # Before any handler starts: a handler may block everything else.
        self._resources.keeper.flush()
        for lease, chains in taken:
            self._runner.begin(lease, chains)
        return count


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


def _summary(runner: LeaseRunner | BatchRunner) -> str:
    counts = runner.counts
    return f"{counts.acked} acked, {counts.failed} failed, {counts.dead} dead-lettered, {counts.released} released"
