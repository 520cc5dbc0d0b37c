"""The network between clients and servers: calls arrive late, twice, again much later, or not at all.

A client without a response gives up after a while and does not know the outcome. A server that dies loses the calls it
was serving: their clients see that the connection broke.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from lakelog.engine import Engine
from prove.simulation.loop import Node, VirtualLoop

Request = Callable[[Engine], Coroutine[Any, Any, Any]]


class CallLost(Exception):
    """The error of a call without a response. The call may have taken effect."""


class Endpoint:
    """The target of calls: a server's node and engine, and the calls it is serving."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.node: Node | None = None
        self.engine: Engine | None = None
        self.serving: dict[asyncio.Future[Any], None] = {}


class NetworkConditions:
    """The share of calls that each network fault affects."""

    def __init__(self) -> None:
        self.lose_request = 0.0
        self.lose_answer = 0.0
        self.duplicate = 0.0
        self.replay = 0.0
        self.slow = 0.0


class SimulatedNetwork:
    """The network of all clients and servers."""

    def __init__(self, loop: VirtualLoop, chance: random.Random) -> None:
        self._loop = loop
        self._chance = chance
        self._node = Node("network")
        self.conditions = NetworkConditions()
        self.is_healed = False
        """True if calls are no longer repeated."""
        self.faults: Counter[str] = Counter()

    async def call(
        self, to: Endpoint, request: Request, *, seconds: float = 3.0, again: Callable[[], None] | None = None
    ) -> Any:
        """Return the response, or raise the refusal; `CallLost` if there was no response.

        If `again` is given, the request may arrive a second time, and `again` is called when it does.
        """
        loop, conditions = self._loop, self.conditions
        answer = loop.create_future()
        context = self._node.context
        if conditions.lose_request and self._meets(conditions.lose_request, "request lost"):
            pass
        else:
            loop.call_later(self._delay(), self._arrive, to, request, answer, context=context)
            if again is not None:
                self._repeat(to, request, again)
        timer = loop.call_later(seconds, _give_up, answer, context=context)
        try:
            return await answer
        finally:
            timer.cancel()

    def broken(self, to: Endpoint) -> None:
        """Fail the calls of a dead server. Their clients get an error, or no response."""
        for answer in to.serving:
            if self._chance.random() < 0.7:
                _give_up(answer)
        to.serving.clear()

    def _repeat(self, to: Endpoint, request: Request, again: Callable[[], None]) -> None:
        for share, kind, latest in (
            (self.conditions.duplicate, "duplicated", 0.05),
            (self.conditions.replay, "replayed", 9),
        ):
            if share and self._meets(share, f"request {kind}"):
                late = latest * self._chance.random() + self._delay()
                self._loop.call_later(late, self._come_again, to, request, again, context=self._node.context)

    def _come_again(self, to: Endpoint, request: Request, again: Callable[[], None]) -> None:
        if self.is_healed:
            return
        again()
        self._arrive(to, request, self._loop.create_future())

    def _meets(self, share: float, kind: str) -> bool:
        if self._chance.random() < share:
            self.faults[kind] += 1
            return True
        return False

    def _delay(self) -> float:
        number = self._chance.random()
        if self.conditions.slow and self._meets(self.conditions.slow, "link slow"):
            return 1.5 * number
        return 0.0002 + 0.003 * number if number < 0.95 else 0.2 * (number - 0.94)

    def _arrive(self, to: Endpoint, request: Request, answer: asyncio.Future[Any]) -> None:
        if to.node is None or to.engine is None:
            _give_up(answer)
            return
        to.serving[answer] = None
        self._loop.begin(to.node, self._serve(to, to.engine, request, answer))

    async def _serve(self, to: Endpoint, engine: Engine, request: Request, answer: asyncio.Future[Any]) -> None:
        result = error = None
        try:
            result = await request(engine)
        except Exception as refusal:
            error = refusal
        to.serving.pop(answer, None)
        lost = self.conditions.lose_answer
        if not answer.done() and not (lost and self._meets(lost, "answer lost")):
            context = self._node.context
            self._loop.call_later(self._delay(), _deliver, answer, result, error, context=context)


def _deliver(answer: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if answer.done():
        return
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(result)


def _give_up(answer: asyncio.Future[Any]) -> None:
    if not answer.done():
        answer.set_exception(CallLost())
