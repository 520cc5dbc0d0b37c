"""The client: topics by name, over one transport."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, TypeVar, overload

from lakelog.client import processes
from lakelog.client._async.calls import AsyncCalls
from lakelog.client._async.group import AsyncGroup
from lakelog.client._async.lake import AsyncLake
from lakelog.client._async.pipelines import AsyncPipelines
from lakelog.client._async.publishing import AsyncTopicState
from lakelog.client._async.topic import AsyncTopic
from lakelog.client._async.transport import AsyncTransport
from lakelog.client._async.writes import AsyncWrites
from lakelog.client._runtime import async_wait_at_exit
from lakelog.client.publishing.codec import Codec, Key, MessageBuilder
from lakelog.client.retrying import CallRetryPolicy
from lakelog.client.worker.completion import WorkerCounts
from lakelog.client.worker.options import Subscription
from lakelog.client.worker.pool import STOP_SECONDS, WorkerPool, WorkerSettings
from lakelog.client.worker.running import async_default_worker_settings, async_worker_runner
from lakelog.model.arguments import check_seconds
from lakelog.model.names import check_name
from lakelog.model.position import Receipt
from lakelog.model.progress import GroupQuery, GroupSummary
from lakelog.model.topic_info import TopicInfo, TopicQuery
from lakelog.wire.operations import groups as group_operations
from lakelog.wire.operations.topics import LIST_TOPICS

T = TypeVar("T")


class AsyncLakelog:
    """A client, made by `connect_async`. It connects when it is first needed; `async with` closes it."""

    def __init__(
        self,
        transport: AsyncTransport,
        policy: CallRetryPolicy,
        settings: WorkerSettings | None = None,
        place: str = "",
    ) -> None:
        self._calls = AsyncCalls(transport, policy, place)
        self._pool = WorkerPool(settings or async_default_worker_settings(transport), policy)
        self._workers = async_worker_runner(self._pool)
        self._states: dict[str, AsyncTopicState] = {}
        self._closed = False
        processes.before_exit(self)

    @overload
    def topic(
        self,
        name: str,
        type: None = None,
        key: Callable[[Any], Key | None] | None = None,
        validate: Callable[[Any], bool | str] | None = None,
        on_publish: Callable[[Receipt], object] | None = None,
    ) -> AsyncTopic[Any]: ...

    @overload
    def topic(
        self,
        name: str,
        type: type[T],
        key: Callable[[T], Key | None] | None = None,
        validate: Callable[[T], bool | str] | None = None,
        on_publish: Callable[[Receipt], object] | None = None,
    ) -> AsyncTopic[T]: ...

    def topic(
        self,
        name: str,
        type: Any = None,
        key: Callable[[Any], Key | None] | None = None,
        validate: Callable[[Any], bool | str] | None = None,
        on_publish: Callable[[Receipt], object] | None = None,
    ) -> AsyncTopic[Any]:
        """Return the topic with this name, whether or not it exists yet. This makes no call to the server.

        Args:
            name: 1 to 120 of the characters a-z, 0-9, dot, underscore and hyphen.
            type: The class of the values: a dataclass, a pydantic model, a `msgspec.Struct`, or another type that
                msgspec decodes from JSON. Publishing a value of another class raises `InvalidRequest`; a stored message
                that does not fit raises it when its `value` is read, and becomes a dead letter in a worker. Default:
                None, values are bytes, text or what JSON holds.
            key: A plain function of the value that returns the key of a message published without one: text, bytes, a
                whole number, or None for no key.
            validate: A plain function of the value that returns True, or the reason why the value must not be
                published. Then publishing raises `InvalidRequest`, and nothing is sent.
            on_publish: A plain function of the receipt, called after each message of `publish` and `publish_many` is
                durable. It is not called for producers and `publish_columns`. An exception that it raises is logged.
        """
        self._calls.check_open()
        check_name("topic", name)
        state = self._states.setdefault(name, AsyncTopicState(name, self._calls, self._pool))
        return AsyncTopic(state, MessageBuilder(Codec(type), key, validate, on_publish))

    async def topics(self) -> list[TopicInfo]:
        """Return the descriptions of all topics of the environment, sorted by name."""
        found: list[TopicInfo] = []
        after: str | None = None
        while True:
            page = await self._calls.call(LIST_TOPICS, TopicQuery(after=after))
            found += page.topics
            after = page.next
            if after is None:
                return found

    @property
    def lake(self) -> AsyncLake:
        """Bulk access to messages, for readers such as Spark."""
        return AsyncLake(self._calls)

    @property
    def writes(self) -> AsyncWrites:
        """Writes of many messages that become visible together, for bulk writers such as Spark."""
        return AsyncWrites(self._calls)

    def group(self, name: str) -> AsyncGroup:
        """Return the group with this name, whether or not it exists yet. This makes no call to the server.

        Args:
            name: 1 to 120 of the characters a-z, 0-9, dot, underscore and hyphen.
        """
        return AsyncGroup(check_name("group", name), self._calls)

    async def groups(self) -> list[GroupSummary]:
        """Return all groups of the environment, by name, each with lag, age, members, dead letters and status.

        It makes one call for each 1,000 groups.
        """
        found: list[GroupSummary] = []
        after: str | None = None
        while True:
            more = await self._calls.call(group_operations.LIST_GROUPS, GroupQuery(after=after))
            found += more.groups
            after = more.next
            if after is None:
                return found

    @property
    def pipelines(self) -> AsyncPipelines:
        """The runs of pipelines such as tiering, with their progress and outcome."""
        return AsyncPipelines(self._calls)

    @property
    def subscriptions(self) -> Sequence[Subscription]:
        """The subscriptions of this client, which `run` and `start` run."""
        return tuple(self._pool.subscriptions)

    @property
    def counts(self) -> Mapping[str, WorkerCounts]:
        """Counts of messages since the workers started, by "topic/group"."""
        return self._pool.counts

    async def run(self) -> None:
        """Run the subscriptions of this client until SIGTERM, SIGINT or `stop`.

        Running handlers then have 25 seconds to finish, and messages that were not started go back to the group
        immediately. A second signal ends the process immediately.

        Raises:
            InvalidRequest: The client has no subscription, or its workers are already running.
            LakelogError: A worker cannot continue: its topic does not exist, its token is not allowed to consume, or
                its settings differ from the group's.
        """
        self._calls.check_open()
        await self._workers.run()

    async def start(self) -> None:
        """Run the subscriptions in the background. Return when each has joined its group. End them with `stop`."""
        self._calls.check_open()
        await self._workers.start()

    async def stop(self, timeout: timedelta | float = STOP_SECONDS) -> None:
        """Stop the workers that `start` or `run` began. Return when they have ended.

        Args:
            timeout: How long running handlers may take to finish, in seconds or as a timedelta. Default: 25 seconds.
                Then their messages go back to the group, and coroutines are cancelled. With 0, it does not wait.
        """
        await self._workers.stop(check_seconds("timeout", timeout))

    async def close(self) -> None:
        """Stop the workers, publish the messages that producers hold, and close the connections.

        Every later call of this client, its topics, groups and producers raises `Closed`. Closing twice is allowed.
        """
        if not self._closed:
            await self._workers.stop(STOP_SECONDS)
            self._closed = True
            processes.forget(self)
            await self._calls.close(STOP_SECONDS)

    async def __aenter__(self) -> AsyncLakelog:
        await self._calls.run(self._calls.transport.open, safe=True)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    def finish_at_exit(self) -> None:
        async_wait_at_exit(self.close)

    def __repr__(self) -> str:
        return f"AsyncLakelog({self._calls.place!r})"
