"""All subscriptions of a client: they start together, and a signal or a call stops them together.

After the first SIGTERM or SIGINT, handlers have 25 seconds (or the time given to `run`) to finish; the second one ends
the process immediately.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from lakelog.client import processes
from lakelog.client._async.delivery import AsyncDelivery
from lakelog.client._async.message_batch import AsyncBatch
from lakelog.client._async.transport import AsyncTransport
from lakelog.client._sync.delivery import Delivery
from lakelog.client._sync.message_batch import Batch
from lakelog.client.publishing.codec import Codec
from lakelog.client.retrying import CallRetryPolicy
from lakelog.client.worker import never_run
from lakelog.client.worker.completion import WorkerCounts
from lakelog.client.worker.defaults import Defaults
from lakelog.client.worker.handlers import (
    Async,
    AsyncDeliveryHandler,
    BatchHandler,
    DeliveryHandler,
    Handler,
    P,
    Plain,
    ValueHandler,
)
from lakelog.client.worker.lease_keeper import LeaseKeeper, WorkerResources
from lakelog.client.worker.metrics import render
from lakelog.client.worker.options import Hook, Subscription, SubscriptionOptions, TopicHooks, check_hooks
from lakelog.client.worker.signals import stop_on_signals
from lakelog.errors import InvalidRequest
from lakelog.model.names import check_name

if TYPE_CHECKING:
    from lakelog.client.worker.worker import SubscriptionWorker

T = TypeVar("T")
R = TypeVar("R")

STOP_SECONDS = 25.0

log = processes.log


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """A transport for the workers' event loop, and a keeper for their leases, as the client provides them."""

    transport: Callable[[], AsyncTransport]
    keeper: Callable[[AsyncTransport], LeaseKeeper]
    owns_transport: bool
    """True if the transport was created for the workers and is closed with them."""
    defaults: Defaults = field(default_factory=Defaults)
    """The defaults of the client's subscriptions."""


class WorkerPool:
    """The subscriptions of a client, and their workers while they run."""

    def __init__(self, settings: WorkerSettings, policy: CallRetryPolicy) -> None:
        self.subscriptions: list[Subscription] = []
        self.topic_hooks: defaultdict[str, TopicHooks] = defaultdict(TopicHooks)
        """The hooks of the topics, by name."""
        self.defaults = settings.defaults
        self._settings = settings
        self._policy = policy
        self._program: str | None = None
        """The module of the main program, if the main program subscribed."""
        self._workers: list[SubscriptionWorker] = []
        self._transport: AsyncTransport | None = None
        self._resources: WorkerResources | None = None
        self._stopped: asyncio.Event | None = None
        self._stopping: asyncio.Task[None] | None = None
        processes.after_fork(self)

    def reset_after_fork(self) -> None:
        """Forget the workers in a child process, because they belong to the parent."""
        processes.inherited.append((self._transport, self._resources, self._workers, self._stopping, self._stopped))
        self._transport = self._resources = self._stopping = self._stopped = None
        self._workers = []

    @property
    def settings(self) -> WorkerSettings:
        """The transport and the keeper for what runs in an event loop of its own."""
        return self._settings

    def redirect(self, settings: WorkerSettings) -> None:
        """Use another transport and keeper for workers that are started from now on."""
        self._settings = settings

    @property
    def running(self) -> bool:
        return self._transport is not None

    @property
    def counts(self) -> dict[str, WorkerCounts]:
        """The counts of each subscription, by "topic/group"."""
        return {worker.subscription.name: worker.counts for worker in self._workers}

    def metrics(self) -> str:
        """Return the metrics of the workers in Prometheus' text format."""
        return render([worker.metrics for worker in self._workers])

    def add(self, subscription: Subscription) -> None:
        if self.running:
            raise InvalidRequest("Subscribe before the workers are started.")
        if any(other.name == subscription.name for other in self.subscriptions):
            raise InvalidRequest(f"This client has a handler for {subscription.name} already.")
        self.subscriptions.append(subscription)
        self._program = never_run.main_program()
        if self._program is not None:
            processes.before_exit(self)

    def add_hooks(self, topic: str, on_ack: Hook | None, on_dead: Hook | None) -> None:
        """Call these functions for all subscriptions of the topic. A function that was added before is not repeated."""
        check_hooks(on_ack, on_dead)
        hooks = self.topic_hooks[topic]
        for present, hook in ((hooks.on_ack, on_ack), (hooks.on_dead, on_dead)):
            if hook is None or hook in present:
                continue
            if self.running:
                raise InvalidRequest(f"Give the hooks of topic '{topic}' before the workers are started.")
            present.append(hook)

    def finish_at_exit(self) -> None:
        warning = never_run.warning(self._program or "", self, self.subscriptions)
        if warning is not None:
            log.warning("%s", warning)

    async def run(self, seconds: float = STOP_SECONDS) -> None:
        """Run the workers until a signal or `stop`. Raise the error of a worker that cannot continue.

        After a signal, running handlers have that many seconds to finish.
        """
        loop, stopped = asyncio.get_running_loop(), asyncio.Event()
        self._stopped = stopped

        def begin_to_stop(name: str) -> None:
            log.info("%s received: finishing running handlers. Send it again to exit immediately.", name)
            stopped.set()

        # Not `loop.add_signal_handler`: a handler that blocks the loop would delay the second signal.
        with stop_on_signals(lambda name: loop.call_soon_threadsafe(begin_to_stop, name)):
            tasks = [asyncio.create_task(self._work()), asyncio.create_task(_until(stopped))]
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
                await self.stop(seconds)

    async def _work(self) -> None:
        await self.start()
        await asyncio.gather(*(worker.failed() for worker in self._workers))

    async def start(self) -> None:
        if not self.subscriptions:
            raise InvalidRequest(
                "This client has no subscription. Subscribe a handler first, with @topic.subscribe(group=…)."
            )
        if self.running:
            raise InvalidRequest("The workers of this client are already running.")
        processes.forget(self)
        # Workers load Arrow, which clients without subscriptions do not need.
        from lakelog.client.worker.worker import SubscriptionWorker

        self._stopping = None
        self._transport = self._settings.transport()
        self._resources = WorkerResources(keeper=self._settings.keeper(self._transport))
        self._resources.keeper.begin()
        self._workers = [
            SubscriptionWorker(subscription, self._transport, self._resources, self._policy)
            for subscription in self.subscriptions
        ]
        try:
            for worker in self._workers:
                await worker.start()
        except BaseException:
            await self._halt(5.0)
            raise

    async def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Stop the workers. The first caller decides how long that may take; later callers wait for it."""
        if self._stopped is not None:
            self._stopped.set()
        await self._halt(seconds)

    async def _halt(self, seconds: float) -> None:
        if self._stopping is None and self.running:
            self._stopping = asyncio.create_task(self._stop(seconds))
        if self._stopping is not None:
            await asyncio.shield(self._stopping)

    async def _stop(self, seconds: float) -> None:
        transport, resources = self._transport, self._resources
        assert transport is not None and resources is not None
        try:
            await asyncio.gather(*(worker.stop(seconds) for worker in self._workers))
        finally:
            self._transport = self._resources = None
            resources.keeper.close()
            resources.threads.close()
            if self._settings.owns_transport:
                await transport.close()


class Subscribe(Generic[T]):
    """Subscribe a handler and return it unchanged: the decorator that `topic.subscribe` returns."""

    def __init__(self, pool: WorkerPool, topic: str, group: str, codec: Codec[T], options: SubscriptionOptions) -> None:
        self._pool = pool
        self._place = (topic, check_name("group", group))
        self._codec = codec
        self._options = options

    def __repr__(self) -> str:
        return f"Subscribe(topic={self._place[0]!r}, group={self._place[1]!r})"

    # Those after the first three are for mypy, which does not match positional-only parameters with the protocols.
    @overload
    def __call__(self, function: ValueHandler[T, P, R]) -> Callable[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, function: AsyncDeliveryHandler[T, P, Async]) -> Callable[P, Async]: ...
    @overload
    def __call__(self, function: DeliveryHandler[T, P, Plain]) -> Callable[P, Plain]: ...
    @overload
    def __call__(self, function: Callable[[T], R]) -> Callable[[T], R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, function: Callable[[T, AsyncDelivery[T]], Async]) -> Callable[[T, AsyncDelivery[T]], Async]: ...
    @overload
    def __call__(self, function: Callable[[T, Delivery[T]], Plain]) -> Callable[[T, Delivery[T]], Plain]: ...
    @overload
    def __call__(self, function: Callable[[AsyncBatch[T]], Async]) -> Callable[[AsyncBatch[T]], Async]: ...
    @overload
    def __call__(self, function: Callable[[Batch[T]], Plain]) -> Callable[[Batch[T]], Plain]: ...

    def __call__(self, function: Any) -> Any:
        topic, group = self._place
        handler = Handler(function) if self._options.batch is None else BatchHandler(function)
        self._pool.add(
            Subscription(
                topic=topic,
                group=group,
                handler=handler,
                codec=self._codec,
                options=self._options,
                topic_hooks=self._pool.topic_hooks[topic],
            )
        )
        return function


async def _until(stopped: asyncio.Event) -> None:
    await stopped.wait()
