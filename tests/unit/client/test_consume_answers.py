"""Answers with a consume, as transports carry them: to this server, to an older one, and into an engine."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from lakelog.client._async.connection import HttpResponse
from lakelog.client._async.embedded import AsyncEmbeddedTransport
from lakelog.client._async.http_leases import AsyncHttpLeases
from lakelog.client.connecting.home_servers import HomeKey
from lakelog.client.embedding.engine import EmbeddedSettings
from lakelog.client.embedding.portal import EngineHost
from lakelog.client.values import Consumed
from lakelog.errors import LeaseLost, OutcomeUnknown, Unavailable
from lakelog.model.lease import Answered, ConsumeRequest, LeaseAnswer, Verb
from lakelog.model.message import Message
from lakelog.model.topic_info import CreateTopicRequest
from lakelog.wire import problems
from lakelog.wire.operations.topics import CREATE_TOPIC
from tests.unit.server.harness import World, working

REQUEST = ConsumeRequest(topic="jobs", group="g", owner="ann", request_id="r-1", max_messages=2, start_from="earliest")
SECONDS = 5.0


@dataclass
class Server:
    """Calls into a server's app. An `old` one refuses the field; one that is `deaf` ignores it, and answers nothing."""

    made: World
    old: bool = False
    deaf: bool = False
    lose: int = 0
    """Number of calls that are served and whose responses are lost."""
    targets: list[str] = field(default_factory=list)

    async def send(self, target: str, seconds: float, body: bytes, accept: str, key: HomeKey) -> HttpResponse:
        self.targets.append(target)
        sent: dict[str, Any] = msgspec.json.decode(body)
        if "answers" in sent and target.startswith("/v1/consume"):
            if self.old:
                sent["nonsense"] = sent.pop("answers")
            elif self.deaf:
                del sent["answers"]
        path, _, query = target.partition("?")
        reply = await self.made.call("POST", path, json=sent, headers={"accept": accept}, query=query)
        if reply.status >= 400:
            problem = msgspec.json.decode(reply.body.replace(b"`nonsense`", b"`answers`"), type=dict[str, Any])
            raise problems.error_of(problem)
        if self.lose:
            self.lose -= 1
            raise OutcomeUnknown("lost")
        return HttpResponse(reply.status, dict(reply.headers), reply.body)


@asynccontextmanager
async def serving(count: int, **how: Any) -> AsyncIterator[tuple[AsyncHttpLeases, Server]]:
    async with working() as made:
        await made.publish("jobs", *({"value": number} for number in range(count)))
        server = Server(made, **how)
        yield AsyncHttpLeases(server), server


async def acks(leases: AsyncHttpLeases | AsyncEmbeddedTransport, **more: Any) -> tuple[LeaseAnswer, ...]:
    found = await leases.consume(replace(REQUEST, **more), SECONDS)
    return acks_of(found)


def acks_of(found: Consumed) -> tuple[LeaseAnswer, ...]:
    return tuple(
        LeaseAnswer(verb=Verb.ACK, partition=lease.partition, token=lease.token, offsets=tuple(lease.offsets()))
        for lease in found.leases
    )


async def round_of(leases: AsyncHttpLeases | AsyncEmbeddedTransport) -> None:
    """Two messages are acked, and the next two taken, in one call of the transport."""
    lost = LeaseAnswer(verb=Verb.ACK, partition=0, token=1, offsets=(0,))
    answers = (*await acks(leases), lost)
    found = await leases.consume(replace(REQUEST, request_id="r-2", answers=answers, wait_ms=20000), SECONDS)
    done, refused = found.answered
    assert done == Answered() and isinstance(refused, LeaseLost)
    assert [list(lease.offsets()) for lease in found.leases] == [[2, 3]]
    found = await leases.consume(replace(REQUEST, request_id="r-3", answers=acks_of(found), wait_ms=20000), SECONDS)
    assert (list(found.answered), found.leases) == ([Answered()], [])


@pytest.mark.parametrize(
    ("how", "calls"),
    [
        ({}, ["/v1/consume"] * 3),
        (
            {"old": True},
            ["/v1/consume"] * 2 + ["/v1/topics/jobs/groups/g/answers", "/v1/consume"] * 2,
        ),
        ({"deaf": True}, ["/v1/consume", *["/v1/consume", "/v1/topics/jobs/groups/g/answers"] * 2]),
    ],
)
async def test_answers_reach_servers_of_any_version(how: dict[str, bool], calls: list[str]) -> None:
    """An older server refuses the field, before it does anything: answers then go in a call of their own."""
    async with serving(4, **how) as (leases, server):
        await round_of(leases)
        assert server.targets == calls
        lag = await server.made.call("GET", "/v1/groups/g/lag", query="topic=jobs")
        assert lag.json["lag"] == 0


async def test_an_older_server_is_tried_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(4, old=True) as (leases, server):
        await round_of(leases)
        server.old, leases._apart_until = False, 0.0
        server.targets.clear()
        await leases.consume(replace(REQUEST, request_id="r-4", answers=(_any(),)), SECONDS)
        assert server.targets == ["/v1/consume"]


def _any() -> LeaseAnswer:
    return LeaseAnswer(verb=Verb.ACK, partition=0, token=1, offsets=(0,))


@pytest.mark.parametrize("how", [{}, {"old": True}])
async def test_S8_S10_a_lost_response_is_repeated(how: dict[str, bool]) -> None:
    async with serving(6, **how) as (leases, server):
        request = replace(REQUEST, request_id="r-2", answers=await acks(leases))
        server.lose = 1
        with pytest.raises(OutcomeUnknown):
            await leases.consume(request, SECONDS)
        other = await acks(leases, owner="bob", request_id="b-1", max_messages=1)
        found = await leases.consume(request, SECONDS, repeat=True)
        assert list(found.answered) == [Answered()]
        (lease,) = found.leases
        assert not {*lease.offsets()} & {0, 1, *other[0].offsets}
        lag = await server.made.call("GET", "/v1/groups/g/lag", query="topic=jobs")
        assert lag.json["partitions"][0]["acked"] == 2


async def test_a_response_with_too_few_outcomes_is_no_answer() -> None:
    async with serving(2) as (leases, server):
        answers = await acks(leases)
        send = server.send

        async def short(*args: Any, **more: Any) -> HttpResponse:
            reply = await send(*args, **more)
            return dataclasses.replace(
                reply, body=reply.body.replace(b'"answered":[{"ok":true}]', b'"answered":[           ]')
            )

        server.send = short  # type: ignore[method-assign]
        with pytest.raises(OutcomeUnknown):
            await leases.consume(replace(REQUEST, request_id="r-2", answers=answers), SECONDS)


async def test_other_refusals_are_raised() -> None:
    async with serving(2) as (leases, server):

        async def away(*_: Any, **__: Any) -> HttpResponse:
            raise Unavailable()

        server.send = away  # type: ignore[method-assign]
        with pytest.raises(Unavailable):
            await leases.consume(replace(REQUEST, answers=(_any(),)), SECONDS)


@asynccontextmanager
async def embedded(count: int) -> AsyncIterator[AsyncEmbeddedTransport]:
    transport = AsyncEmbeddedTransport(
        EngineHost(EmbeddedSettings(url="memory://"), "default", "default", own_thread=False)
    )
    try:
        await transport.call(CREATE_TOPIC, CreateTopicRequest(topic="jobs"), SECONDS)
        await transport.publish_messages("jobs", [Message(value=b"x")] * count, None, None, SECONDS)
        yield transport
    finally:
        await transport.close()


async def test_answers_into_an_engine() -> None:
    async with embedded(4) as transport:
        await round_of(transport)


@pytest.mark.parametrize("kind", ["http", "embedded"])
async def test_S12_the_reason_for_no_lease_is_in_the_result(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unreadable(*_: Any) -> Any:
        raise Unavailable("The store is away.")

    async with AsyncExitStack() as stack:
        leases: AsyncHttpLeases | AsyncEmbeddedTransport
        if kind == "http":
            leases, server = await stack.enter_async_context(serving(4))
            engine = server.made.engine
        else:
            leases = await stack.enter_async_context(embedded(4))
            engine = (await leases._portal.run(leases._session.open, SECONDS)).engine
        answers = await acks(leases)
        monkeypatch.setattr(engine.leases._context.batch_cache, "pieces", unreadable)
        found = await leases.consume(replace(REQUEST, request_id="r-2", answers=answers), SECONDS)
        assert (list(found.answered), list(found.leases)) == ([Answered()], [])
        assert isinstance(found.refusal, Unavailable) and "The store is away." in found.refusal.detail
