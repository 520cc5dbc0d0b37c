"""Staged writes over HTTP: the requests that a caller may send, and the responses."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import pytest

from lakelog.batches import encode, from_messages
from lakelog.model.message import Message
from lakelog.wire.frames import MEDIA_TYPE, NO_PRODUCER, PublishFrame, write_publish
from tests.unit.server.harness import Reply, World, world

PATH = "/v1/topics/orders"
QUERY = {"write_id": "query/17", "attempt": "a", "incarnation": 1, "epoch": 0}


def frame(*values: bytes, **given: Any) -> PublishFrame:
    payload = encode(from_messages([Message(value=value) for value in values]))
    fields = {"partition": 0, "epoch": 0, "count": len(values), "sequence": 0, "producer": NO_PRODUCER}
    return PublishFrame(**{**fields, "payload": payload, **given})


async def stage(made: World, *frames: PublishFrame, body: bytes | None = None, **query: Any) -> Reply:
    sent = write_publish(frames) if body is None else body
    asked = {name: each for name, each in {**QUERY, **query}.items() if each is not None}
    headers = {"content-type": MEDIA_TYPE}
    return await made.call("POST", f"{PATH}/staged", query=urlencode(asked), body=sent, headers=headers)


async def decide(made: World, count: int, *attempts: str, **given: Any) -> Reply:
    body = {"write_id": "query/17", "attempts": attempts, "count": count, "incarnation": 1, "epoch": 0, **given}
    return await made.call("POST", f"{PATH}/writes", json=body)


async def test_staged_twice_decided_twice_in_the_log_once() -> None:
    async with world() as made:
        for _ in range(2):
            assert (await stage(made, frame(b"a", b"b"), frame(b"c", partition=1))).status == 204
        assert (await stage(made, frame(b"x"), attempt="loser")).status == 204
        answers = [await decide(made, 3, "a"), await decide(made, 3, "a"), await decide(made, 1, "loser")]
        assert [(reply.status, reply.json) for reply in answers] == [
            (200, {"count": 3, "won": True}),
            (200, {"count": 3, "won": True}),
            (200, {"count": 3, "won": False}),
        ]
        fetched = await made.fetch("orders", 0, "limit=10", headers={"accept": "application/json"})
        assert fetched.json["high_watermark"] == 2


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({"write_id": None}, 422),
        ({"write_id": ""}, 422),
        ({"write_id": "a\nb"}, 422),
        ({"attempt": "x" * 121}, 422),
        ({"incarnation": "one"}, 422),
        ({"incarnation": 999}, 409),
        ({"epoch": 3}, 409),
        ({"other": 1}, 422),
    ],
)
async def test_a_query_that_says_less_or_else(query: dict[str, Any], status: int) -> None:
    async with world() as made:
        reply = await stage(made, frame(b"a"), **query)
        assert reply.status == status, reply.body


@pytest.mark.parametrize(
    ("frames", "status"),
    [
        ([], 422),
        ([frame(b"a", count=2)], 422),
        ([frame(b"a", payload=b"\x01\0\0\0\x02\0\0\0rubbish that is no batch")], 422),
        ([frame(b"a", partition=99)], 404),
        ([frame(b"a", sequence=1 << 31)], 422),
        ([frame(b"a"), frame(b"b" * (1 << 20) + b"b", sequence=1)], 413),
    ],
)
async def test_frames_that_cannot_be_stored_are_refused_and_nothing_is_staged(
    frames: list[PublishFrame], status: int
) -> None:
    async with world() as made:
        reply = await stage(made, *frames)
        assert reply.status == status, reply.body
        assert (await decide(made, 1, "a")).status == 409


async def test_a_body_cut_short_or_of_another_kind() -> None:
    async with world() as made:
        whole = write_publish([frame(b"a")])
        assert (await stage(made, body=whole[:-1])).status == 422
        reply = await made.call("POST", f"{PATH}/staged", query=urlencode(QUERY), json={"messages": []})
        assert reply.status == 415


@pytest.mark.parametrize("given", [{"attempts": ["a", "a"]}, {"attempts": [""]}, {"write_id": "\0"}, {"epoch": -1}])
async def test_decisions_that_mean_nothing(given: dict[str, Any]) -> None:
    async with world() as made:
        assert (await decide(made, 0, **given)).status == 422
