"""What a topic has to do with groups: subscriptions, seeks, pauses, lag, dead letters."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Generic, Literal, TypeVar

from lakelog.client._async.dead_letters import AsyncDeadLetters
from lakelog.client._async.publishing import AsyncTopicState
from lakelog.client.codec import Maker
from lakelog.client.group_values import Sought, TopicStats
from lakelog.client.positions import position_of
from lakelog.client.work.crew import Subscribe
from lakelog.client.work.options import Filter, Hook, Options, Retries, StartFrom
from lakelog.errors import InvalidRequest
from lakelog.model.group import Assignor, Order, Start
from lakelog.model.names import check_name

T = TypeVar("T")


class AsyncTopicGroups(Generic[T]):
    """A part of `AsyncTopic`."""

    _state: AsyncTopicState
    _maker: Maker[T]

    def subscribe(
        self,
        handler: Callable[..., Any] | None = None,
        /,
        *,
        group: str,
        concurrency: int = 1,
        batch_size: int = 50,
        max_in_flight: int | None = None,
        filter: Filter | None = None,
        retries: Retries | None = None,
        dead_letter: bool | None = None,
        on_dead: Hook | None = None,
        on_ack: Hook | None = None,
        start_from: StartFrom = "latest",
        ack: Literal["auto", "manual"] = "auto",
        ack_timeout: timedelta | float = 30.0,
        lease: timedelta | float = 30.0,
        order: Order | str | None = None,
        assignor: Assignor | str | None = None,
        session_timeout: timedelta | float = 30.0,
        heartbeat: timedelta | float | None = None,
    ) -> Subscribe:
        """Gives each message of the topic to the handler, as a member of the group; works from `log.run()` on.

        A decorator, or a call with the handler. It takes `(value)` or `(value, delivery)`; a plain function runs in a
        thread. When it returns the message is acked, when it raises it is tried again as `retries` say, and is then a
        dead letter. A text `filter` is the group's; a function runs here. `ack_timeout` is how long the handler may
        take, `lease` how soon others get the message if this process dies.
        """
        options = Options(
            concurrency=concurrency,
            batch_size=batch_size,
            max_in_flight=max_in_flight,
            filter=filter,
            retries=retries,
            dead_letter=dead_letter,
            on_dead=on_dead,
            on_ack=on_ack,
            start_from=start_from,
            ack=ack,
            ack_timeout=ack_timeout,
            lease=lease,
            order=order,
            assignor=assignor,
            session_timeout=session_timeout,
            heartbeat=heartbeat,
        )

        subscribe = Subscribe(self._state.crew, self._state.name, group, self._maker.codec, options)
        if handler is not None:
            subscribe(handler)
        return subscribe

    async def seek(
        self,
        group: str,
        *,
        to: Literal["earliest", "latest"] | datetime | None = None,
        offset: int | None = None,
        message_id: str | None = None,
        partition: int | None = None,
        dry_run: bool = False,
    ) -> list[Sought]:
        """Moves the group in this topic: to either end or a time, to an offset, or to a message.

        What is leased is taken back, retries are forgotten. Says for each partition where it was and where it goes on.
        """
        check_name("group", group)
        target = _target(to, offset, message_id)
        calls, name = self._state.calls, self._state.name
        moved = await calls.run(
            lambda left: calls.transport.groups.seek(group, name, target, partition, dry_run, left), safe=True
        )
        return [*moved]

    async def pause(self, group: str | None = None) -> None:
        """Hands out nothing of this topic from now on: to one group, or to any that reads it."""
        calls, name = self._state.calls, self._state.name
        await calls.run(lambda left: calls.transport.groups.pause(group, name, left), safe=True)

    async def resume(self, group: str | None = None) -> None:
        calls, name = self._state.calls, self._state.name
        await calls.run(lambda left: calls.transport.groups.resume(group, name, left), safe=True)

    async def lag(self, group: str) -> int:
        """How many messages of this topic the group has not finished."""
        calls, name = self._state.calls, self._state.name
        found = await calls.run(lambda left: calls.transport.groups.lag(group, name, left), safe=True)
        return sum(each.lag for each in found)

    async def stats(self) -> TopicStats:
        """The topic in numbers, and how far each of its groups is."""
        calls, name = self._state.calls, self._state.name
        return await calls.run(lambda left: calls.transport.groups.stats(name, left), safe=True)

    def dead_letters(self, group: str) -> AsyncDeadLetters:
        """The messages of this topic that the group has given up."""
        return AsyncDeadLetters(self._state.calls, check_name("group", group), self._state.name)


def _target(to: str | datetime | None, offset: int | None, message_id: str | None) -> Start | str:
    if (to is not None) + (offset is not None) + (message_id is not None) != 1:
        raise InvalidRequest("Say where to: `to` (earliest, latest or a time), `offset` or `message_id`; one of them.")
    if message_id is not None:
        return message_id
    if isinstance(to, datetime):
        return position_of(time=to)
    return position_of(offset if to is None else to)  # type: ignore[arg-type]
