"""A group in the caller's hands: how far it is, and the verbs that change it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from lakelog.client._async.calls import AsyncCalls
from lakelog.client._async.dead_letters import AsyncDeadLetters
from lakelog.client._async.group_transport import AsyncGroupTransport
from lakelog.client.group_values import (
    Answer,
    Answered,
    CommitWish,
    Consumed,
    ConsumeWish,
    GroupDescription,
    GroupInfo,
    JoinWish,
    Membership,
    PartitionProgress,
    Position,
)
from lakelog.client.work.options import Retries, wish_of
from lakelog.errors import LakelogError
from lakelog.model.group import Assignor, Order

Found = TypeVar("Found")


class AsyncGroup:
    """Made by `log.group(name)`. The group itself is made when its first member joins."""

    def __init__(self, name: str, calls: AsyncCalls) -> None:
        self.name = name
        self._calls = calls

    async def describe(self) -> GroupDescription:
        """Members, progress, who holds what, and why anything stands still."""
        return await self._call(lambda groups, left: groups.describe(self.name, left))

    async def lag(self, topic: str | None = None) -> int:
        """How many messages are not finished, of one topic or of all that the group reads."""
        return sum(each.lag for each in await self.progress(topic))

    async def progress(self, topic: str | None = None) -> list[PartitionProgress]:
        """The same by partition, with more figures."""
        return [*await self._call(lambda groups, left: groups.lag(self.name, topic, left))]

    async def pause(self, topic: str | None = None) -> None:
        """Hands out nothing from now on, of the topic or of any; what is leased may be finished."""
        await self._call(lambda groups, left: groups.pause(self.name, topic, left))

    async def resume(self, topic: str | None = None) -> None:
        await self._call(lambda groups, left: groups.resume(self.name, topic, left))

    async def alter(
        self,
        *,
        order: Order | str | None = None,
        filter: str | None = None,
        retries: Retries | None = None,
        dead_letter: bool | None = None,
        assignor: Assignor | str | None = None,
        window: int | None = None,
    ) -> GroupInfo:
        """Changes what is given. An empty filter takes the filter away."""
        wish = wish_of(
            order=order, filter=filter, retries=retries, dead_letter=dead_letter, assignor=assignor, window=window
        )
        return await self._call(lambda groups, left: groups.alter(self.name, wish, left))

    async def delete(self) -> None:
        """Forgets the group, its progress and its dead letters. It must have no members."""
        await self._call(lambda groups, left: groups.delete(self.name, left), safe=False)

    # For those who run handlers elsewhere, and so do themselves what a worker does -----------------------------------

    async def consume(self, wish: ConsumeWish) -> Consumed:
        """Leases messages. A repeat with the same request id gets the same leases again."""
        groups = self._calls.transport.groups
        return await self._calls.run(lambda left: groups.consume(wish, left), safe=True, wait_seconds=wish.wait_seconds)

    async def answer(self, topic: str, owner: str, answers: Sequence[Answer]) -> list[Answered | LakelogError]:
        """Says what became of leased messages: one result each, in order. Tokens make it safe to repeat."""
        return await self._call(lambda groups, left: groups.answer(topic, self.name, owner, answers, left))

    # For consumers that keep positions, instead of answering messages one by one ------------------------------------

    async def join(self, wish: JoinWish) -> Membership:
        """Becomes a member, or stays one. It has to heartbeat within its session."""
        return await self._call(lambda groups, left: groups.join(wish, left))

    async def heartbeat(self, member_id: str, generation: int) -> Membership:
        """Says that the member is alive and has heard of that generation; hears what holds now."""
        return await self._call(lambda groups, left: groups.heartbeat(self.name, member_id, generation, left))

    async def leave(self, member_id: str) -> None:
        """Its partitions are free at once. Harmless if there is no such member."""
        await self._call(lambda groups, left: groups.leave(self.name, member_id, left))

    async def positions(self, topic: str) -> Mapping[int, Position]:
        """Where the group is, by partition; empty if it has no position in the topic."""
        return await self._call(lambda groups, left: groups.positions(self.name, topic, left))

    async def commit(
        self,
        topic: str,
        positions: Mapping[int, int],
        *,
        member_id: str | None = None,
        generation: int | None = None,
        epoch: int | None = None,
    ) -> None:
        """Moves a cursor group on: by partition, the offset to read next. Repeating it is harmless.

        With a member and its generation, one that was replaced is refused; with an epoch, one that a seek overtook.
        """
        wish = CommitWish(topic=topic, positions=positions, member_id=member_id, generation=generation, epoch=epoch)
        await self._call(lambda groups, left: groups.commit(self.name, wish, left))

    def dead_letters(self, topic: str | None = None) -> AsyncDeadLetters:
        """What the group has given up."""
        return AsyncDeadLetters(self._calls, self.name, topic)

    async def _call(
        self, call: Callable[[AsyncGroupTransport, float], Awaitable[Found]], *, safe: bool = True
    ) -> Found:
        groups = self._calls.transport.groups
        return await self._calls.run(lambda left: call(groups, left), safe=safe)

    def __repr__(self) -> str:
        return f"AsyncGroup({self.name!r})"
