"""The client itself: topics by name, over one transport."""

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
from lakelog.client.backoff import Policy
from lakelog.client.codec import Codec, Key, Maker
from lakelog.client.group_values import GroupInfo
from lakelog.client.positions import seconds_of
from lakelog.client.values import TopicInfo
from lakelog.client.work.crew import STOP_SECONDS, Crew, Workshop
from lakelog.client.work.lease_runner import Counts
from lakelog.client.work.options import Subscription
from lakelog.client.work.running import AsyncWorkers, async_default_workshop
from lakelog.errors import Closed
from lakelog.model.names import check_name
from lakelog.model.position import Receipt

T = TypeVar("T")


class AsyncLakelog:
    """Made by `connect_async`. Usable as it is, or by `async with`; connects when first needed."""

    def __init__(self, transport: AsyncTransport, policy: Policy, workshop: Workshop | None = None) -> None:
        self._calls = AsyncCalls(transport, policy)
        self._crew = Crew(workshop or async_default_workshop(transport), policy)
        self._workers = AsyncWorkers(self._crew)
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
        """The topic of that name, whether or not it exists yet.

        `type` is a dataclass, a pydantic or a msgspec class. `key` makes a message's key of its value; `validate`
        answers True, or why not. Both run here, before anything is sent. `on_publish` runs here too, with the receipt,
        after each message of `publish` and `publish_many` is in the log.
        """
        if self._closed:
            raise Closed("This client was closed; connect again.")
        check_name("topic", name)
        state = self._states.setdefault(name, AsyncTopicState(name, self._calls, self._crew))
        return AsyncTopic(state, Maker(Codec(type), key, validate, on_publish))

    async def topics(self) -> list[TopicInfo]:
        """All topics of the environment, by name."""
        found: list[TopicInfo] = []
        transport = self._calls.transport
        while True:
            after = found[-1].name if found else ""

            async def page(left: float, after: str = after) -> list[TopicInfo]:
                return await transport.list_topics(after, left)

            more = await self._calls.run(page, safe=True)
            if not more:
                return found
            found += more

    @property
    def lake(self) -> AsyncLake:
        """Topics as whole ranges of messages, hot and cold."""
        return AsyncLake(self._calls)

    @property
    def writes(self) -> AsyncWrites:
        """Many messages that become visible by one decision."""
        return AsyncWrites(self._calls)

    def group(self, name: str) -> AsyncGroup:
        """The group of that name, whether or not it exists yet."""
        return AsyncGroup(check_name("group", name), self._calls)

    async def groups(self) -> list[GroupInfo]:
        """All groups of the environment, by name."""
        found: list[GroupInfo] = []
        transport = self._calls.transport
        while True:
            after = found[-1].name if found else ""

            async def page(left: float, after: str = after) -> Sequence[GroupInfo]:
                return await transport.groups.list_groups(after, left)

            more = await self._calls.run(page, safe=True)
            if not more:
                return found
            found += more

    @property
    def pipelines(self) -> AsyncPipelines:
        """The record of what moves many messages: who runs, how far it is, how it ended."""
        return AsyncPipelines(self._calls)

    @property
    def subscriptions(self) -> Sequence[Subscription]:
        """The handlers that `run` runs."""
        return tuple(self._crew.subscriptions)

    @property
    def counts(self) -> Mapping[str, Counts]:
        """What the workers have done, by topic/group."""
        return self._crew.counts

    async def run(self) -> None:
        """Runs every subscription until SIGTERM or SIGINT, or `stop`; a second signal ends the process at once.

        Handlers that run may finish, within 25 seconds; messages not begun go back to the group at once.
        """
        await self._workers.run()

    async def start(self) -> None:
        """The same beside the caller: returns when every subscription has joined its group."""
        await self._workers.start()

    async def stop(self, timeout: timedelta | float = STOP_SECONDS) -> None:
        """Ends what `start` or `run` began."""
        await self._workers.stop(seconds_of(timeout))

    async def close(self) -> None:
        """Stops the workers and lets go of connections. Producers are closed by themselves, before."""
        if not self._closed:
            await self._workers.stop(STOP_SECONDS)
            self._closed = True
            processes.forget(self)
            await self._calls.transport.close()

    async def __aenter__(self) -> AsyncLakelog:
        await self._calls.run(self._calls.transport.open, safe=True)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    def finish_at_exit(self) -> None:
        async_wait_at_exit(self.close)
