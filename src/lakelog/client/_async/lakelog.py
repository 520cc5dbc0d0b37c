"""The client itself: topics by name, over one transport."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar, overload

from lakelog.client import processes
from lakelog.client._async.calls import AsyncCalls
from lakelog.client._async.publishing import AsyncTopicState
from lakelog.client._async.topic import AsyncTopic
from lakelog.client._async.transport import AsyncTransport
from lakelog.client._runtime import async_wait_at_exit
from lakelog.client.backoff import Policy
from lakelog.client.codec import Codec, Key, Maker
from lakelog.client.values import TopicInfo
from lakelog.errors import Closed
from lakelog.model.names import check_name

T = TypeVar("T")


class AsyncLakelog:
    """Made by `connect_async`. Usable as it is, or by `async with`; connects when first needed."""

    def __init__(self, transport: AsyncTransport, policy: Policy) -> None:
        self._calls = AsyncCalls(transport, policy)
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
    ) -> AsyncTopic[Any]: ...

    @overload
    def topic(
        self,
        name: str,
        type: type[T],
        key: Callable[[T], Key | None] | None = None,
        validate: Callable[[T], bool | str] | None = None,
    ) -> AsyncTopic[T]: ...

    def topic(
        self,
        name: str,
        type: Any = None,
        key: Callable[[Any], Key | None] | None = None,
        validate: Callable[[Any], bool | str] | None = None,
    ) -> AsyncTopic[Any]:
        """The topic of that name, whether or not it exists yet.

        `type` is a dataclass, a pydantic or a msgspec class. `key` makes a message's key of its value; `validate`
        answers True, or why not. Both run here, before anything is sent.
        """
        if self._closed:
            raise Closed("This client was closed; connect again.")
        check_name("topic", name)
        state = self._states.setdefault(name, AsyncTopicState(name, self._calls))
        return AsyncTopic(state, Maker(Codec(type), key, validate))

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

    async def close(self) -> None:
        """Lets go of connections. Producers are closed by themselves, before."""
        if not self._closed:
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
