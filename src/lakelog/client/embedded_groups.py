"""The verbs about groups into an engine of this process, in both colours. Which loop that lives in is `embedded`'s."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeVar

from lakelog.client import group_values as values
from lakelog.client.embedding.engine import EmbeddedEngine
from lakelog.model import dead_letters
from lakelog.model.topic import Scope

R = TypeVar("R")


class GroupVerbs:
    """The verbs as coroutines in the engine's loop. `enter` gives the hub and the scope."""

    def __init__(self, enter: Callable[[], Awaitable[tuple[EmbeddedEngine, Scope]]]) -> None:
        self._enter = enter

    async def list_dead(self, group: str, wish: values.DeadWish) -> dead_letters.DeadLetterPage:
        hub, scope = await self._enter()
        query = dead_letters.DeadLetterQuery(
            group=group,
            topic=wish.topic,
            partition=wish.partition,
            where=wish.where,
            state=wish.state,
            after=wish.after,
            limit=wish.limit,
        )
        return await hub.engine.dead_letters.list(scope, query)

    async def find_dead(self, group: str, message_id: str) -> dead_letters.DeadLetter:
        hub, scope = await self._enter()
        request = dead_letters.DeadLetterRequest(group=group, message_id=message_id)
        return await hub.engine.dead_letters.find(scope, request)

    async def redrive(self, group: str, wish: values.RedriveWish) -> dead_letters.Redriven:
        hub, scope = await self._enter()
        request = dead_letters.RedriveRequest(
            group=group,
            message_ids=wish.message_ids,
            topic=wish.topic,
            where=wish.where,
            limit=wish.limit,
            dry_run=wish.dry_run,
            force=wish.force,
            max_redrives=wish.max_redrives,
            repaired=wish.repaired,
        )
        return await hub.engine.dead_letters.redrive(scope, request)

    async def discard(self, group: str, wish: values.DeadWish) -> int:
        hub, scope = await self._enter()
        request = dead_letters.DiscardRequest(
            group=group, message_ids=wish.message_ids, topic=wish.topic, where=wish.where, limit=wish.limit
        )
        return (await hub.engine.dead_letters.discard(scope, request)).discarded


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

    async def list_dead(self, group: str, wish: values.DeadWish, seconds: float) -> dead_letters.DeadLetterPage:
        return await self._run(self._verbs.list_dead, seconds, group, wish, writes=False)

    async def find_dead(self, group: str, message_id: str, seconds: float) -> dead_letters.DeadLetter:
        return await self._run(self._verbs.find_dead, seconds, group, message_id, writes=False)

    async def redrive(self, group: str, wish: values.RedriveWish, seconds: float) -> dead_letters.Redriven:
        return await self._run(self._verbs.redrive, seconds, group, wish)

    async def discard(self, group: str, wish: values.DeadWish, seconds: float) -> int:
        return await self._run(self._verbs.discard, seconds, group, wish)


class EmbeddedGroups:
    """The `GroupTransport` into an engine of this process."""

    def __init__(self, verbs: GroupVerbs, run: Run) -> None:
        self._verbs = verbs
        self._run = run

    def list_dead(self, group: str, wish: values.DeadWish, seconds: float) -> dead_letters.DeadLetterPage:
        return self._run(self._verbs.list_dead, seconds, group, wish, writes=False)

    def find_dead(self, group: str, message_id: str, seconds: float) -> dead_letters.DeadLetter:
        return self._run(self._verbs.find_dead, seconds, group, message_id, writes=False)

    def redrive(self, group: str, wish: values.RedriveWish, seconds: float) -> dead_letters.Redriven:
        return self._run(self._verbs.redrive, seconds, group, wish)

    def discard(self, group: str, wish: values.DeadWish, seconds: float) -> int:
        return self._run(self._verbs.discard, seconds, group, wish)
