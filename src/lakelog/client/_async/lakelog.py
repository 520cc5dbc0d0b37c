"""The client: topics by name, over one transport."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Literal, TypeVar, overload

from lakelog.client import processes
from lakelog.client._async.audit import AsyncAudit
from lakelog.client._async.calls import AsyncCalls
from lakelog.client._async.consumer import AsyncConsumer
from lakelog.client._async.group import AsyncGroup
from lakelog.client._async.lake import AsyncLake
from lakelog.client._async.lakelog_messages import AsyncLakelogMessages
from lakelog.client._async.marks import AsyncMarks
from lakelog.client._async.pipelines import AsyncPipelines
from lakelog.client._async.publishing import AsyncTopicState
from lakelog.client._async.rejected import AsyncRejected
from lakelog.client._async.tokens import AsyncTokens
from lakelog.client._async.topic import AsyncTopic
from lakelog.client._async.transport import AsyncTransport
from lakelog.client._async.writes import AsyncWrites
from lakelog.client._runtime import async_wait_at_exit
from lakelog.client.consumer.options import Commit, ConsumerOptions, ConsumerTopic, Mode
from lakelog.client.publishing.codec import Codec, Key, MessageBuilder
from lakelog.client.retrying import CallRetryPolicy
from lakelog.client.worker.completion import WorkerCounts
from lakelog.client.worker.handlers import OnAck, OnDead
from lakelog.client.worker.options import Retries, StartFrom, Subscription
from lakelog.client.worker.pool import STOP_SECONDS, WorkerPool, WorkerSettings
from lakelog.client.worker.running import async_default_worker_settings, async_worker_runner
from lakelog.model.arguments import check_seconds
from lakelog.model.group import Assignor, Order
from lakelog.model.inventory import Inventory, InventoryRequest
from lakelog.model.names import check_name
from lakelog.model.position import Receipt
from lakelog.model.progress import MAX_GROUP_PAGE, GroupQuery, GroupSummary
from lakelog.model.topic_info import TopicInfo, TopicQuery
from lakelog.wire.operations import groups as group_operations
from lakelog.wire.operations.inventory import INVENTORY
from lakelog.wire.operations.topics import LIST_TOPICS

T = TypeVar("T")


class AsyncLakelog(AsyncLakelogMessages):
    """A client, made by `connect_async`. It connects when it is first needed; `async with` closes it."""

    def __init__(
        self,
        transport: AsyncTransport,
        policy: CallRetryPolicy,
        settings: WorkerSettings | None = None,
        place: str = "",
    ) -> None:
        self._calls = AsyncCalls(transport, policy, place)
        self._settings = settings or async_default_worker_settings(transport)
        self._pool = WorkerPool(self._settings, policy)
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
        on_ack: OnAck[Any] | None = None,
        on_dead: OnDead[Any] | None = None,
    ) -> AsyncTopic[Any]: ...

    @overload
    def topic(
        self,
        name: str,
        type: type[T],
        key: Callable[[T], Key | None] | None = None,
        validate: Callable[[T], bool | str] | None = None,
        on_publish: Callable[[Receipt], object] | None = None,
        on_ack: OnAck[T] | None = None,
        on_dead: OnDead[T] | None = None,
    ) -> AsyncTopic[T]: ...

    def topic(
        self,
        name: str,
        type: Any = None,
        key: Callable[[Any], Key | None] | None = None,
        validate: Callable[[Any], bool | str] | None = None,
        on_publish: Callable[[Receipt], object] | None = None,
        on_ack: OnAck[Any] | None = None,
        on_dead: OnDead[Any] | None = None,
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
                published. Then publishing raises `InvalidRequest`, and nothing is sent. It runs for each message of
                this topic that this client publishes; for `publish_columns`, with the value that a reader would get.
            on_publish: A plain function of the receipt, called once for each published message after it is durable, in
                this process: in the call for `publish`, `publish_many` and `publish_columns`, in the background for a
                producer, before its `flush` returns. It is not called for messages that failed. An exception that it
                raises is logged, and publishing continues. It must be quick: the messages after it wait.
            on_ack: A function of `(delivery)`, called after the server accepted the ack of a message of this topic, in
                all groups that this client subscribes. Plain or a coroutine function. An exception is logged. Give it
                before the workers are started. Hooks of several calls all run, after that of the subscription.
            on_dead: The same for a function of `(delivery, error)`, after a message became a dead letter.
        """
        self._calls.check_open()
        check_name("topic", name)
        if on_ack is not None or on_dead is not None:
            self._pool.add_hooks(name, on_ack, on_dead)
        state = self._states.setdefault(name, AsyncTopicState(name, self._calls, self._pool))
        return AsyncTopic(state, MessageBuilder(Codec(type), key, validate, on_publish))

    async def inventory(self) -> Inventory:
        """Return the names of all topics and groups of the environment, without figures."""
        return await self._calls.call(INVENTORY, InventoryRequest())

    async def topics(self, *, group: str | None = None) -> list[TopicInfo]:
        """Return the descriptions of topics of the environment, sorted by name.

        Args:
            group: Only topics that this group reads. Default: all topics.
        """
        found: list[TopicInfo] = []
        after: str | None = None
        while True:
            page = await self._calls.call(LIST_TOPICS, TopicQuery(after=after, group=group))
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

    async def groups(
        self,
        *,
        lags: bool = False,
        explained: int = 0,
        contains: str = "",
        after: str | None = None,
        limit: int | None = None,
    ) -> list[GroupSummary]:
        """Return groups of the environment, by name, each with lag, age, members, dead letters and status.

        It makes one call for each 1,000 groups.

        Args:
            lags: Whether each group has its lags of the last hour, every five minutes. Default: False.
            explained: How many groups say why their messages wait, at most 10 of each 1,000: those that need attention
                most. Default: 0.
            contains: Only groups whose names contain this text, of at most 120 characters. Default: all groups.
            after: Only groups whose names come after this one. Default: all groups.
            limit: The largest number of groups to return, at least 1. Default: all groups.
        """
        found: list[GroupSummary] = []
        while limit is None or len(found) < limit:
            most = MAX_GROUP_PAGE if limit is None else min(MAX_GROUP_PAGE, limit - len(found))
            query = GroupQuery(after=after, limit=most, lags=lags, explained=explained, contains=contains)
            page = await self._calls.call(group_operations.LIST_GROUPS, query)
            found += page.groups
            if page.next is None:
                break
            after = page.next
        return found

    def consumer(
        self,
        *topics: str | AsyncTopic[Any],
        group: str | None = None,
        mode: Mode | None = None,
        host_id: str | None = None,
        kind: Literal["lease", "cursor"] | None = None,
        commit: Commit | None = None,
        commit_interval: timedelta | float = 5.0,
        start_from: StartFrom | None = None,
        prefetch: int | None = None,
        ack_timeout: timedelta | float = 300.0,
        lease: timedelta | float = 30.0,
        order: Order | str | None = None,
        filter: str | None = None,
        retries: Retries | None = None,
        dead_letter: bool | None = None,
        assignor: Assignor | str | None = None,
        session_timeout: timedelta | float = 30.0,
        heartbeat: timedelta | float | None = None,
    ) -> AsyncConsumer[Any]:
        """Return a consumer, with which the program asks for messages. This makes no call to the server.

        With a group, the messages are shared with all other members of the group: workers, consumers, and programs over
        HTTP. Without one, the consumer reads in real time, from now on, and commits nothing. It then also returns
        expired messages, and copies that were redriven for a group.

        `order`, `filter`, `retries`, `dead_letter` and `assignor` are settings of the group, as for `subscribe`.

        Args:
            topics: The topics to read, at most 100: names, or topics with a type.
            group: The name of the group. Default: none.
            mode: "load-balanced" (the default with a group), "real-time" (the default without one), or "resumable": a
                cursor group of this host, so that a program that starts again continues where it stopped.
            host_id: The identity of the host for "resumable". Default: `LAKELOG_HOST_ID`, else the id of the
                container, else that of the machine.
            kind: "lease" (the default): messages are acked one by one. "cursor": each partition is read by one member,
                which commits positions.
            commit: When messages are committed. "manual": the program answers messages, or calls `commit`; the default
                in a lease group. "immediate": when their thread or task asks for the next one. For cursor groups also
                "interval" (the default): like "immediate", but the position is sent every `commit_interval`; and
                "rolling": messages are committed when they were returned longer than `commit_interval` ago.
            commit_interval: The interval or delay of commits, in seconds or as a timedelta. Default: 5 seconds. 0
                switches periodic commits off.
            start_from: Where a group begins that has not read a topic before, or a consumer without a group: "latest"
                (the default), "earliest", a datetime with a time zone, or an offset. "none" raises `NoPosition` until
                the group has a position.
            prefetch: Messages that are read ahead, and wait in this process until they are asked for. 0 turns it off.
                The default of a lease group is automatic: about 100 ms of work of a program that takes messages one by
                one, at most 50. Otherwise, it is a page of 5,000 messages of each partition.
            ack_timeout: How long the program may hold a message without an answer, in seconds or as a timedelta, above
                zero. Default: 300 seconds. Then the message has failed. `message.extend` gives more time.
            lease: How soon other members get the messages of this process if it dies, in seconds or as a timedelta,
                from 0.1 seconds to 12 hours. Default: 30 seconds. The lease is extended while the program works.
            order: "key", "partition" or "none": which messages come one after another. Default: the group's.
            filter: Which messages the group gets, such as `"value.total > 100"`. Default: the group's filter.
            retries: How often a nacked message is delivered again. Default: the group's.
            dead_letter: Keep a message that failed too often as a dead letter. Default: the group's.
            assignor: How partitions are shared among the members. Default: the group's.
            session_timeout: How long this member stays in the group without a heartbeat, in seconds or as a timedelta.
                Default: 30 seconds.
            heartbeat: The time between two heartbeats, in seconds or as a timedelta. Default: a third of
                `session_timeout`, at most 10 seconds.

        Raises:
            InvalidRequest: An argument is not valid.
        """
        self._calls.check_open()
        options = ConsumerOptions(
            topics=tuple(_consumer_topic(each) for each in topics),
            group=group,
            mode=mode,
            host_id=host_id,
            kind=kind,
            commit=commit,
            commit_interval=commit_interval,
            start_from=start_from,
            prefetch=prefetch,
            ack_timeout=ack_timeout,
            lease=lease,
            order=order,
            filter=filter,
            retries=retries,
            dead_letter=dead_letter,
            assignor=assignor,
            session_timeout=session_timeout,
            heartbeat=heartbeat,
        )
        return AsyncConsumer(options, self._settings, self._calls)

    @property
    def rejected(self) -> AsyncRejected:
        """Messages that were refused after they were published, such as those to a topic that does not exist."""
        return AsyncRejected(self._calls)

    @property
    def tokens(self) -> AsyncTokens:
        """Child tokens: with the rights of this client's token or fewer, for 12 hours or less."""
        return AsyncTokens(self._calls)

    @property
    def audit(self) -> AsyncAudit:
        """Audit records: who changed what, and which calls were refused."""
        return AsyncAudit(self._calls)

    @property
    def marks(self) -> AsyncMarks:
        """Marks on the timeline of topics and groups: deploys, and changes such as pauses and seeks."""
        return AsyncMarks(self._calls)

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

    def metrics(self) -> str:
        """Return the metrics of this client's workers in Prometheus' text format.

        They are the histogram `lakelog_worker_handler_seconds` of how long handlers ran, and the counter
        `lakelog_worker_messages_total` by outcome, for each topic and group since the workers started. Serve the text
        with the content type `text/plain; version=0.0.4`.
        """
        return self._pool.metrics()

    async def run(self, *, drain: timedelta | float = STOP_SECONDS) -> None:
        """Run the subscriptions of this client until SIGTERM, SIGINT or `stop`.

        Running handlers may then finish, and messages that were not started go back to the group immediately. A second
        signal ends the process immediately.

        Args:
            drain: How long running handlers may take to finish after a signal, in seconds or as a timedelta, 0 or more.
                Default: 25 seconds. Then their messages go back to the group, and coroutines are cancelled.

        Raises:
            InvalidRequest: The client has no subscription, or its workers are already running.
            LakelogError: A worker cannot continue: its topic does not exist, its token is not allowed to consume, or
                its settings differ from the group's.
        """
        self._calls.check_open()
        await self._workers.run(check_seconds("drain", drain))

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

    def _redirect(self, transport: AsyncTransport, settings: WorkerSettings) -> tuple[AsyncTransport, WorkerSettings]:
        """Send all calls through another transport, for tests. Return the former transport and settings.

        Args:
            transport: The transport of the client's calls.
            settings: The transport and the keeper of its workers.
        """
        former = (self._calls.redirect(transport), self._settings)
        self._settings = settings
        self._pool.redirect(settings)
        self._forget_topics()
        return former

    def _forget_topics(self) -> None:
        """Forget the cached descriptions of topics, because the installation or its time was changed."""
        for state in self._states.values():
            state.forget()

    def finish_at_exit(self) -> None:
        async_wait_at_exit(self.close)

    def __repr__(self) -> str:
        return f"AsyncLakelog({self._calls.place!r})"


def _consumer_topic(topic: str | AsyncTopic[Any]) -> ConsumerTopic:
    if isinstance(topic, AsyncTopic):
        return ConsumerTopic(name=topic.name, codec=topic._builder.codec)
    return ConsumerTopic(name=topic, codec=Codec(None))
