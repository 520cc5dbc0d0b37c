"""An installation in memory for one test: clients, handlers, published messages, failures and the clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from types import TracebackType
from typing import Any, TypeVar, overload

from lakelog.client import processes
from lakelog.client._async.embedded import AsyncEmbeddedTransport
from lakelog.client._async.lakelog import AsyncLakelog
from lakelog.client._async.transport import AsyncTransport
from lakelog.client._sync.embedded import EmbeddedTransport
from lakelog.client._sync.group import Group
from lakelog.client._sync.lakelog import Lakelog
from lakelog.client._sync.topic import Topic
from lakelog.client._sync.transport import Transport
from lakelog.client.connecting.connect import connect
from lakelog.client.embedding.engine import EmbeddedSettings
from lakelog.client.embedding.portal import EngineHost
from lakelog.client.embedding.session import memory_engines
from lakelog.client.functions import name_of
from lakelog.client.reading.messages import ReceivedMessage
from lakelog.client.worker.lease_keeper import LeaseKeeper
from lakelog.client.worker.options import Subscription
from lakelog.client.worker.pool import WorkerSettings
from lakelog.errors import InvalidRequest, Unavailable
from lakelog.model.arguments import check_positive_seconds, check_whole
from lakelog.storage.store import DEFAULT_CELL
from lakelog.testing.clock import ManualClock
from lakelog.testing.draining import Drain, DrainResult, NoKeeper
from lakelog.testing.faults import OrderedFaults
from lakelog.testing.session import TestedSession

T = TypeVar("T")
Client = Lakelog | AsyncLakelog
HandlerFunction = Callable[..., object]

_SECONDS = 30.0
_names = count(1)


class MemoryInstallation:
    """An installation in memory with a manual clock: the fixture `lakelog_memory`. `with` closes it.

    Topics that do not exist are created with one partition when they are first used. Groups that have not read a topic
    begin with its first message, unless their subscription has `start_from`. Agents such as retention do not run;
    delayed messages are published when the clock is advanced beyond their time.

    Attributes:
        clock: The time of the installation. It moves only by `clock.advance`.
        url: The URL for `lakelog.connect` and `lakelog.connect_async`. During a test with the fixture it is also in
            `LAKELOG_URL`.
        log: A client of the installation.
    """

    def __init__(self) -> None:
        self.clock = ManualClock(self._write_heartbeats, self._advanced)
        self._name = f"lakelog-testing-{next(_names)}"
        self.url = f"memory://{self._name}"
        self._faults = OrderedFaults()
        self._settings = EmbeddedSettings(url=self.url, agents=False, clock=self.clock.now)
        memory_engines.set_session(self._name, partial(TestedSession, self._faults))
        self._engine = memory_engines.thread.submit(memory_engines.open(self._settings)).result(_SECONDS).engine
        self.log = connect(self.url)
        self._attached: list[tuple[Client, Callable[[], object]]] = []
        self._started: set[str] = set()
        self._runner: asyncio.Runner | None = None

    # Clients ----------------------------------------------------------------------------------------------------------

    @overload
    def topic(self, name: str, type: None = None) -> Topic[Any]: ...
    @overload
    def topic(self, name: str, type: type[T]) -> Topic[T]: ...

    def topic(self, name: str, type: Any = None) -> Topic[Any]:
        """Return a topic, which is created if it does not exist.

        Args:
            name: 1 to 120 of the characters a-z, 0-9, dot, underscore and hyphen.
            type: The class of the values, as for `Lakelog.topic`. Default: None, what JSON holds.
        """
        return self.log.topic(name, type)

    def group(self, name: str) -> Group:
        """Return a group, for example to read its lag.

        Args:
            name: The name of the group.
        """
        return self.log.group(name)

    def attach(self, *clients: Client) -> None:
        """Send the calls of these clients to this installation until it is closed.

        Use it for clients that the program created when it was imported. `drain` attaches the client of each handler.

        Args:
            clients: Clients of `lakelog.connect` or `lakelog.connect_async`, without running workers.
        """
        for client in clients:
            if client is not self.log and all(client is not other for other, _ in self._attached):
                self._attached.append((client, self._redirect(client)))

    def _redirect(self, client: Client) -> Callable[[], object]:
        """Redirect the client. Return a function that undoes it."""
        if isinstance(client, AsyncLakelog):
            former = client._redirect(self._async_transport(), self._worker_settings())
            return lambda: client._redirect(*former)
        earlier = client._redirect(self._transport(), self._worker_settings())
        return lambda: client._redirect(*earlier)

    def _host(self) -> EngineHost:
        return EngineHost(self._settings, "default", "default", own_thread=True)

    def _transport(self) -> Transport:
        return EmbeddedTransport(self._host())

    def _async_transport(self) -> AsyncTransport:
        return AsyncEmbeddedTransport(self._host())

    def _worker_settings(self) -> WorkerSettings:
        return WorkerSettings(transport=self._async_transport, keeper=_no_keeper, owns_transport=False)

    # Handlers ---------------------------------------------------------------------------------------------------------

    def drain(self, *handlers: HandlerFunction, timeout: float = 30.0) -> DrainResult:
        """Run handlers until no message is due for them. Return what they did.

        A handler that raises has failed, as in a worker: its message is due again after the clock was advanced. The
        installation must not be drained by an event loop that runs: use `drain_async` there.

        Args:
            handlers: Functions that were subscribed with `topic.subscribe`. Their clients are attached. Default: all
                handlers of this installation and of attached clients.
            timeout: The limit for all handlers together, in seconds of the machine. Default: 30. Then the call raises
                `TimeoutError`.

        Raises:
            InvalidRequest: A handler is not subscribed, or this thread runs an event loop.
        """
        if asyncio._get_running_loop() is not None:
            raise InvalidRequest("This thread runs an event loop. Write `await lakelog_memory.drain_async(…)`.")
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(self.drain_async(*handlers, timeout=timeout))

    async def drain_async(self, *handlers: HandlerFunction, timeout: float = 30.0) -> DrainResult:
        """Do the same as `drain` in the running event loop, for tests that are coroutines.

        Args:
            handlers: Functions that were subscribed with `topic.subscribe`. Default: all.
            timeout: The limit for all handlers together, in seconds of the machine. Default: 30.
        """
        seconds = check_positive_seconds("timeout", timeout)
        subscriptions = self._subscriptions(handlers)
        return await Drain(self._async_transport(), self._faults).run(subscriptions, seconds)

    def fail_next(self, target: HandlerFunction | str, *, error: Exception | None = None, times: int = 1) -> None:
        """Let the next runs of a handler, or the next publishes to a topic, fail.

        Args:
            target: A handler: its next runs raise the error, and the function is not called. Or the name of a topic:
                the next calls that publish to it raise the error, and nothing is published. The client retries errors
                that a retry can help.
            error: The error. Default: `RuntimeError` for a handler, `lakelog.errors.Unavailable` for a topic.
            times: How often to fail, 1 or more. Default: 1.
        """
        check_whole("times", times, 1)
        if error is None:
            text = "The test ordered this failure."
            error = Unavailable(text) if isinstance(target, str) else RuntimeError(text)
        self._faults.add(target, error, times)

    def _subscriptions(self, handlers: Sequence[HandlerFunction]) -> list[Subscription]:
        clients = [self.log, *(client for client, _ in self._attached)]
        if not handlers:
            found = [each for client in clients for each in client.subscriptions]
            if not found:
                raise InvalidRequest("No handler is subscribed. Pass the handlers, or attach the client that has them.")
        else:
            found = [each for handler in handlers for each in self._of_handler(handler)]
        return [self._from_earliest(each) for each in found]

    def _of_handler(self, handler: HandlerFunction) -> list[Subscription]:
        """Return the subscriptions of the handler, and attach their clients."""
        found: list[Subscription] = []
        for client in processes.open_until_exit():
            if isinstance(client, Lakelog | AsyncLakelog):
                own = [each for each in client.subscriptions if each.handler.function == handler]
                if own:
                    self.attach(client)
                    found += own
        if not found:
            raise InvalidRequest(
                f"{name_of(handler)} is not subscribed to a topic. Subscribe it with "
                "@topic.subscribe(group=…), or lakelog_memory.topic(…).subscribe(handler, group=…)."
            )
        return found

    def _from_earliest(self, subscription: Subscription) -> Subscription:
        """Let a new group begin with the first message: in production, the group existed before the message."""
        if subscription.options.start_from is not None or subscription.name in self._started:
            return subscription
        self._started.add(subscription.name)
        return replace(subscription, options=replace(subscription.options, start_from="earliest"))

    # Messages ---------------------------------------------------------------------------------------------------------

    def published(self, topic: str, *, type: Any = None) -> list[ReceivedMessage[Any]]:
        """Return all messages of a topic, partition by partition in order.

        Args:
            topic: The name of the topic.
            type: The class of the values. Default: None, what JSON holds.
        """
        return list(self.log.topic(topic, type).read())

    def assert_published(
        self,
        topic: str,
        *,
        count: int | None = None,
        key: str | bytes | None = None,
        value: object = None,
        where: Callable[[Any], bool] | None = None,
        type: Any = None,
    ) -> list[ReceivedMessage[Any]]:
        """Assert that a topic has messages, and return those that match.

        Args:
            topic: The name of the topic.
            count: How many messages match. Default: at least one.
            key: Only messages with this key match. Default: any key.
            value: Only messages with this value match. Default: any value.
            where: A function of the message that returns whether it matches. Default: all messages match.
            type: The class of the values. Default: the class of `value` if it is not what JSON holds.

        Raises:
            AssertionError: The number of matching messages differs. The text lists all messages of the topic.
        """
        if type is None and value is not None and not isinstance(value, _JSON):
            type = value.__class__
        everything = self.published(topic, type=type)
        wanted_key = key.encode() if isinstance(key, str) else key
        found = [
            message
            for message in everything
            if (wanted_key is None or message.key == wanted_key)
            and (value is None or message.value == value)
            and (where is None or where(message))
        ]
        if len(found) != count if count is not None else not found:
            number = "at least 1" if count is None else str(count)
            kind = "" if key is None and value is None and where is None else " matching"
            noun = "message" if count in (None, 1) else "messages"
            text = f"expected {number}{kind} {noun} in topic '{topic}', found {len(found)}"
            raise AssertionError(text + _listed(everything))
        return found

    # The end ----------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the installation, and give attached clients their own connection again. Closing twice is allowed."""
        while self._attached:
            _, undo = self._attached.pop()
            undo()
        if self._runner is not None:
            self._runner.close()
            self._runner = None
        self.log.close()
        memory_engines.thread.submit(memory_engines.remove(self._name)).result(_SECONDS)

    def __enter__(self) -> MemoryInstallation:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"MemoryInstallation({self.url!r})"

    def _write_heartbeats(self) -> None:
        """Let sessions begin at the time of the last heartbeat, not at a later time when it would be written."""
        memory_engines.thread.submit(self._engine.members.write_heartbeats()).result(_SECONDS)

    def _advanced(self) -> None:
        """Let the engine read everything again with the new time, and publish the delayed messages that are due."""

        async def refresh() -> None:
            self._engine.caches.drop(DEFAULT_CELL)
            await self._engine.scheduled_delivery.deliver_all(DEFAULT_CELL)

        memory_engines.thread.submit(refresh()).result(_SECONDS)
        for client in (self.log, *(client for client, _ in self._attached)):
            client._forget_topics()


_JSON = (dict, list, str, int, float, bool, bytes)


def _no_keeper(_: AsyncTransport) -> LeaseKeeper:
    return NoKeeper()


def _listed(messages: Sequence[ReceivedMessage[Any]]) -> str:
    """Return the first messages, one on each line."""
    if not messages:
        return "; the topic is empty"
    lines = [f"  {each.partition}:{each.offset} key={each.key!r} value={each.value!r}" for each in messages[:20]]
    more = [f"  and {len(messages) - 20} more"] if len(messages) > 20 else []
    return "\n".join([". The topic has:", *lines, *more])
