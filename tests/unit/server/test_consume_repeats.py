"""A consume that was sent before says so, and a call that its home did not answer is served as one."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec
import pytest

from lakelog.engine.budget import Budget
from lakelog.engine.leasing.consuming import ConsumeResult
from lakelog.errors import OutcomeUnknown
from lakelog.model.lease import ConsumeRequest
from lakelog.model.shard import WHOLE, Shard
from lakelog.model.topic import Scope
from lakelog.server.answering import Answering
from lakelog.server.calls import Call
from lakelog.server.consuming import Consuming
from lakelog.server.group_routing import GroupRouting
from lakelog.server.metrics import Metrics
from lakelog.server.streams import Streams
from lakelog.storage.groups import ServerInfo
from tests.unit.server.harness import World, working

ASK = {"topic": "jobs", "group": "billing", "owner": "w1", "start_from": "earliest", "request_id": "r1"}


def watched(made: World, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the engine's calls were repeats."""
    asked: list[bool] = []
    consume = made.engine.leases.consume

    async def consume_watched(
        scope: Scope, request: ConsumeRequest, *, repeat: bool = False, shard: Shard | None = None
    ) -> ConsumeResult:
        asked.append(repeat)
        return await consume(scope, request, repeat=repeat, shard=shard)

    monkeypatch.setattr(made.engine.leases, "consume", consume_watched)
    return asked


async def test_a_call_says_that_it_is_a_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does so by a parameter: a server of an older version refuses an unknown field, and ignores a parameter."""
    async with working() as made:
        await made.publish("jobs", {"value": 1})
        asked = watched(made, monkeypatch)
        queries = ["", "repeat=false", "repeat=true", "repeat=true&later=1"]
        replies = [await made.call("POST", "/v1/consume", json=ASK, query=each) for each in queries]
        refused = await made.call("POST", "/v1/consume", json=ASK, query="repeat=yes")
    assert asked == [False, False, True, True]
    assert len({reply.json["leases"][0]["token"] for reply in replies}) == 1
    assert refused.status == 422 and "`repeat` must be true or false" in refused.json["detail"]


class SilentHome:
    """A home that may have served the call, and did not answer."""

    has_others = True

    def elsewhere(self, call: Call, group: str, topic: str, *, owner: str, partitions: int) -> ServerInfo:
        return ServerInfo(server_id="other", address="127.0.0.1:1")

    def shard(self, call: Call, group: str, topic: str, partitions: int) -> Shard:
        return WHOLE

    async def forward(self, call: Call, body: bytes, home: ServerInfo, *, seconds: float = 0.0) -> None:
        return None


async def test_a_call_that_its_home_did_not_answer_is_served_as_a_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    bodies = [msgspec.json.encode(ASK)]

    async def receive() -> dict[str, Any]:
        if not bodies:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": bodies.pop()}

    async with working() as made:
        asked = watched(made, monkeypatch)
        call = Call({"headers": [(b"content-type", b"application/json")]}, receive, Budget(1 << 20))
        call.scope = made.scope
        answering = Answering(made.engine, Metrics(), Streams())
        consuming = Consuming(made.engine, made.drain, Metrics(), answering, cast(GroupRouting, SilentHome()))
        assert (await consuming.consume(call)).status == 200
    assert asked == [True]


class BusyHome(SilentHome):
    """A home that leases messages, and whose response does not arrive before the server drains."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def forward(self, call: Call, body: bytes, home: ServerInfo, *, seconds: float = 0.0) -> None:
        self.asked.set()
        await asyncio.Event().wait()


@pytest.mark.parametrize("request_id", ["r1", None])
async def test_a_call_that_its_home_may_have_served_has_an_unknown_outcome_when_the_server_drains(
    request_id: str | None,
) -> None:
    """The home keeps the leases of a call with a request id, because its caller repeats it. Others are released."""
    bodies = [msgspec.json.encode({**ASK, "request_id": request_id, "wait_ms": 30_000})]

    async def receive() -> dict[str, Any]:
        if not bodies:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": bodies.pop()}

    home = BusyHome()
    async with working() as made:
        call = Call({"headers": [(b"content-type", b"application/json")]}, receive, Budget(1 << 20))
        call.scope = made.scope
        answering = Answering(made.engine, Metrics(), Streams())
        consuming = Consuming(made.engine, made.drain, Metrics(), answering, cast(GroupRouting, home))
        poll = asyncio.create_task(consuming.consume(call))
        await home.asked.wait()
        made.drain.begin()
        if request_id is None:
            assert (await poll).status == 200
        else:
            with pytest.raises(OutcomeUnknown, match="same request id"):
                await poll
