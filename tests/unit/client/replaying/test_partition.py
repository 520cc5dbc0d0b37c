"""Lanes and positions of a replay in one partition."""

from __future__ import annotations

from typing import Any

import pytest

from lakelog.client.publishing.codec import Codec
from lakelog.client.reading.messages import ReceivedMessage
from lakelog.client.replaying.pacer import Pacer
from lakelog.client.replaying.partition import PartitionReplay, split
from lakelog.client.values import ReplayedPartition
from lakelog.model.times import EPOCH


def messages(first: int, end: int, keys: int | None = 3) -> list[ReceivedMessage[Any]]:
    return [
        ReceivedMessage(
            topic="orders",
            partition=0,
            offset=offset,
            key=None if keys is None else b"k%d" % (offset % keys),
            raw=b"1",
            headers={},
            content_type=None,
            correlation_id=None,
            idempotency_key=None,
            appended_at=EPOCH,
            _created=None,
            _expires=None,
            _incarnation=1,
            _codec=Codec(None),
        )
        for offset in range(first, end)
    ]


def test_messages_of_a_key_share_a_lane_in_order() -> None:
    lanes = split(messages(0, 30), 4)
    for lane in lanes:
        offsets = [message.offset for message in lane.messages]
        assert offsets == sorted(offsets)
    for key in {message.key for lane in lanes for message in lane.messages}:
        assert sum(any(message.key == key for message in lane.messages) for lane in lanes) == 1
    assert sorted(message.offset for lane in lanes for message in lane.messages) == [*range(30)]


def test_messages_without_a_key_take_turns() -> None:
    assert [len(lane.messages) for lane in split(messages(0, 10, None), 4)] == [3, 3, 2, 2]
    assert len(split(messages(0, 10, None), 1)) == 1


def test_the_position_is_the_first_message_that_is_not_finished() -> None:
    replayed = PartitionReplay(ReplayedPartition(0, 0, 5, 30))
    assert (replayed.position, replayed.finished) == (5, 0)
    first, second = replayed.start(messages(5, 11, None), 2)
    assert [message.offset for message in second.messages] == [6, 8, 10]
    second.done = 3
    assert (replayed.position, replayed.finished) == (5, 3)
    first.done = 2
    assert (replayed.position, replayed.finished) == (9, 5)
    first.done = 3
    assert (replayed.position, replayed.finished) == (11, 6)
    replayed.start(messages(11, 13), 1)
    assert (replayed.position, replayed.finished) == (11, 6)
    assert replayed.progress() == (0, 0, 11, 30)


def test_retired_messages_are_counted_up_to_the_end_of_the_range() -> None:
    replayed = PartitionReplay(ReplayedPartition(0, 0, 5, 30))
    replayed.skip_to(5)
    assert (replayed.position, replayed.retired) == (5, 0)
    replayed.skip_to(12)
    assert (replayed.position, replayed.retired) == (12, 7)
    replayed.skip_to(40)
    assert (replayed.position, replayed.retired) == (30, 25)


async def test_the_pacer_spreads_messages_over_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now, slept = 100.0, []

    async def sleep(seconds: float) -> None:
        slept.append(round(seconds, 6))

    monkeypatch.setattr("lakelog.client.replaying.pacer.time.monotonic", lambda: now)
    monkeypatch.setattr("lakelog.client.replaying.pacer.asyncio.sleep", sleep)
    pacer = Pacer(50)
    for _ in range(3):
        await pacer.pass_(5)
    assert (slept, pacer.most) == ([0.1, 0.2], 5)
    now = 110.0
    await pacer.pass_(5)
    assert slept == [0.1, 0.2], "a pause is not made up for"
    await Pacer(None).pass_(10_000)
    assert (len(slept), Pacer(None).most, Pacer(2).most) == (2, None, 1)
