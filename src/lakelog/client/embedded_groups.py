"""The verbs about groups into an engine of this process, in both colours. Which loop that lives in is `embedded`'s."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeVar

from lakelog.client import group_values as values
from lakelog.client.embedding.engine import EmbeddedEngine
from lakelog.client.engine_values import letter_of
from lakelog.engine.groups.dead_letters import DeadLetterPage
from lakelog.model.topic import Scope

R = TypeVar("R")
_PAGE = 1000


class GroupVerbs:
    """The verbs as coroutines in the engine's loop. `enter` gives the hub and the scope."""

    def __init__(self, enter: Callable[[], Awaitable[tuple[EmbeddedEngine, Scope]]]) -> None:
        self._enter = enter

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

    def list_dead(self, group: str, wish: values.DeadWish, seconds: float) -> values.DeadPage:
        return self._run(self._verbs.list_dead, seconds, group, wish, writes=False)

    def find_dead(self, group: str, message_id: str, seconds: float) -> values.DeadLetter:
        return self._run(self._verbs.find_dead, seconds, group, message_id, writes=False)

    def redrive(self, group: str, wish: values.RedriveWish, seconds: float) -> values.Redriven:
        return self._run(self._verbs.redrive, seconds, group, wish)

    def discard(self, group: str, wish: values.DeadWish, seconds: float) -> int:
        return self._run(self._verbs.discard, seconds, group, wish)
