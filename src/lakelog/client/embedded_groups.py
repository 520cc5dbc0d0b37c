"""The verbs about groups into an engine of this process, in both colours. Which loop that lives in is `embedded`'s."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from lakelog.client import group_values as values
from lakelog.client.embedding.engine import EmbeddedEngine
from lakelog.client.engine_values import (
    consumed_of,
    letter_of,
)
from lakelog.engine.groups.dead_letters import DeadLetterPage
from lakelog.engine.leasing import consuming
from lakelog.errors import LakelogError
from lakelog.model.lease import Answered, LeaseAnswer
from lakelog.model.membership import Membership
from lakelog.model.topic import Scope

R = TypeVar("R")
_PAGE = 1000


class GroupVerbs:
    """The verbs as coroutines in the engine's loop. `enter` gives the hub and the scope."""

    def __init__(self, enter: Callable[[], Awaitable[tuple[EmbeddedEngine, Scope]]]) -> None:
        self._enter = enter

    async def consume(self, wish: values.ConsumeWish) -> values.Consumed:
        hub, scope = await self._enter()
        ask = consuming.ConsumeAsk(
            topic=wish.topic,
            group=wish.group,
            owner=wish.owner,
            max_messages=wish.max_messages,
            lease_ms=wish.lease_ms,
            wait_seconds=wish.wait_seconds,
            request_id=wish.request_id,
            member_id=wish.member_id,
            generation=wish.generation,
            isolates=wish.isolates,
            repeat=wish.repeat,
            answers=wish.answers,
            wish=wish.wish,
        )
        return consumed_of(await hub.engine.leases.consume(scope, ask))

    async def answer(
        self, topic: str, group: str, owner: str, answers: Sequence[LeaseAnswer]
    ) -> list[Answered | LakelogError]:
        hub, scope = await self._enter()
        return await hub.engine.leases.answer(scope, topic, group, owner, answers)

    async def join(self, wish: values.JoinWish) -> Membership:
        hub, scope = await self._enter()
        ask = consuming.JoinAsk(
            group=wish.group,
            topics=wish.topics,
            member_id=wish.member_id,
            session_ms=wish.session_ms,
            client_host=f"{wish.client_host} ({wish.client})".strip() if wish.client else wish.client_host,
            replaces=wish.replace,
            wish=wish.wish,
        )
        return await hub.engine.members.join(scope, ask)

    async def list_dead(self, group: str, wish: values.DeadWish) -> values.DeadPage:
        hub, scope = await self._enter()
        page: DeadLetterPage = await hub.engine.dead_letters.list(
            scope,
            group,
            topic=wish.topic,
            partition=wish.partition,
            where=wish.where,
            state=wish.state,
            after=wish.after,
            limit=wish.limit,
        )
        return values.DeadPage(letters=[letter_of(letter) for letter in page.letters], next=page.after)

    async def find_dead(self, group: str, message_id: str) -> values.DeadLetter:
        hub, scope = await self._enter()
        return letter_of(await hub.engine.dead_letters.find(scope, group, message_id))

    async def redrive(self, group: str, wish: values.RedriveWish) -> values.Redriven:
        hub, scope = await self._enter()
        done = await hub.engine.dead_letters.redrive(
            scope,
            group,
            message_ids=wish.message_ids,
            topic=wish.topic,
            where=wish.where,
            limit=wish.limit,
            dry_run=wish.dry_run,
            force=wish.force,
            max_redrives=wish.max_redrives,
            repaired=wish.repaired,
        )
        return values.Redriven(
            redriven=done.redriven,
            refused=done.refused,
            ids=tuple(done.ids),
            refusals=tuple(done.refusals),
            has_more=done.has_more,
            dry_run=wish.dry_run,
        )

    async def discard(self, group: str, wish: values.DeadWish) -> int:
        hub, scope = await self._enter()
        return await hub.engine.dead_letters.discard(
            scope, group, message_ids=wish.message_ids, topic=wish.topic, where=wish.where, limit=wish.limit
        )


class AsyncRun(Protocol):
    """How `AsyncEmbeddedTransport` gets a verb done."""

    async def __call__(
        self, verb: Callable[..., Coroutine[Any, Any, R]], seconds: float, *args: Any, writes: bool = True
    ) -> R: ...


class Run(Protocol):
    """How `EmbeddedTransport` gets a verb done."""

    def __call__(
        self, verb: Callable[..., Coroutine[Any, Any, R]], seconds: float, *args: Any, writes: bool = True
    ) -> R: ...


class AsyncEmbeddedGroups:
    """The `AsyncGroupTransport` into an engine of this process."""

    def __init__(self, verbs: GroupVerbs, run: AsyncRun) -> None:
        self._verbs = verbs
        self._run = run

    async def consume(self, wish: values.ConsumeWish, seconds: float) -> values.Consumed:
        return await self._run(self._verbs.consume, seconds, wish)

    async def answer(
        self, topic: str, group: str, owner: str, answers: Sequence[LeaseAnswer], seconds: float
    ) -> list[Answered | LakelogError]:
        return await self._run(self._verbs.answer, seconds, topic, group, owner, answers)

    async def join(self, wish: values.JoinWish, seconds: float) -> Membership:
        return await self._run(self._verbs.join, seconds, wish)

    async def list_dead(self, group: str, wish: values.DeadWish, seconds: float) -> values.DeadPage:
        return await self._run(self._verbs.list_dead, seconds, group, wish, writes=False)

    async def find_dead(self, group: str, message_id: str, seconds: float) -> values.DeadLetter:
        return await self._run(self._verbs.find_dead, seconds, group, message_id, writes=False)

    async def redrive(self, group: str, wish: values.RedriveWish, seconds: float) -> values.Redriven:
        return await self._run(self._verbs.redrive, seconds, group, wish)

    async def discard(self, group: str, wish: values.DeadWish, seconds: float) -> int:
        return await self._run(self._verbs.discard, seconds, group, wish)


class EmbeddedGroups:
    """The `GroupTransport` into an engine of this process."""

    def __init__(self, verbs: GroupVerbs, run: Run) -> None:
        self._verbs = verbs
        self._run = run

    def consume(self, wish: values.ConsumeWish, seconds: float) -> values.Consumed:
        return self._run(self._verbs.consume, seconds, wish)

    def answer(
        self, topic: str, group: str, owner: str, answers: Sequence[LeaseAnswer], seconds: float
    ) -> list[Answered | LakelogError]:
        return self._run(self._verbs.answer, seconds, topic, group, owner, answers)

    def join(self, wish: values.JoinWish, seconds: float) -> Membership:
        return self._run(self._verbs.join, seconds, wish)

    def list_dead(self, group: str, wish: values.DeadWish, seconds: float) -> values.DeadPage:
        return self._run(self._verbs.list_dead, seconds, group, wish, writes=False)

    def find_dead(self, group: str, message_id: str, seconds: float) -> values.DeadLetter:
        return self._run(self._verbs.find_dead, seconds, group, message_id, writes=False)

    def redrive(self, group: str, wish: values.RedriveWish, seconds: float) -> values.Redriven:
        return self._run(self._verbs.redrive, seconds, group, wish)

    def discard(self, group: str, wish: values.DeadWish, seconds: float) -> int:
        return self._run(self._verbs.discard, seconds, group, wish)
