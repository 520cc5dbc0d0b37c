"""Messages that are selected by key or filter, and the limits of the work."""

from __future__ import annotations

from itertools import count

import pytest

import lakelog
from lakelog.client.reading import selecting
from lakelog.client.reading.selecting import Deadline, Selection
from lakelog.model.filter import parse

NEVER = Deadline(at=1.0, clock=lambda: 0.0)


async def _messages() -> list[lakelog.ReceivedMessage[object]]:
    async with lakelog.connect_async("memory://") as log:
        topic = log.topic("orders")
        await topic.create(1)
        await topic.publish_many([lakelog.Outgoing({"n": n, "text": "x" * 200 + "abc"}, key=f"k{n}") for n in range(4)])
        return list((await topic.fetch(0)).messages)


async def test_by_key_and_filter_up_to_a_number() -> None:
    messages = await _messages()
    found, examined = Selection(key=b"k2").select(messages, most=9, deadline=NEVER)
    assert ([each.offset for each in found], examined) == ([2], 4)
    found, examined = Selection(filter=parse("value.n > 0")).select(messages, most=2, deadline=NEVER)
    assert ([each.offset for each in found], examined) == ([1, 2], 3)
    assert Selection(key=b"k2", filter=parse("value.n = 3")).select(messages, most=9, deadline=NEVER) == ([], 4)
    assert len(Selection().select(messages, most=9, deadline=NEVER)[0]) == 4


async def test_a_filter_ends_at_the_deadline_and_a_message_at_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    messages, ticks = await _messages(), count()
    costly = Selection(filter=parse("value.text like '%a_c%'"))
    found, examined = costly.select(messages, most=9, deadline=Deadline(at=1.0, clock=lambda: next(ticks)))
    assert ([each.offset for each in found], examined) == ([0, 1], 2)
    monkeypatch.setattr(selecting, "MESSAGE_STEPS", 200)
    assert not any(map(costly.matches, messages))
