"""What a driver says about leases is said again until it is decided, each answer by itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import pytest

import lakelog
from lakelog.errors import LakelogError, LeaseLost, OutcomeUnknown, Unavailable
from lakelog.model.group import RequestedSettings
from lakelog.model.lease import Answered, LeaseAnswer, Verb
from lakelog.spark.subscribing.lease_member import LeaseMember

ANSWERS = [LeaseAnswer(verb=Verb.ACK, partition=partition, token=1, offsets=(0,)) for partition in range(3)]
DONE, OVER, AWAY, LOST = Answered(), LeaseLost("over"), Unavailable("away"), OutcomeUnknown("lost")

Results = list[Answered | LakelogError]


def answered(
    monkeypatch: pytest.MonkeyPatch, replies: Sequence[Results | LakelogError], give_up: Callable[[], bool]
) -> tuple[Results, list[list[int]]]:
    """The results, and the partitions of each call, if the server replies so."""
    left = deque(replies)
    event: list[list[int]] = []
    with lakelog.connect("memory://") as log:
        member = LeaseMember(log, "orders", "billing", RequestedSettings(), 30_000)

        def answer(topic: str, owner: str, answers: Sequence[LeaseAnswer]) -> Results:
            event.append([each.partition for each in answers])
            reply = left.popleft()
            if isinstance(reply, LakelogError):
                raise reply
            return reply

        monkeypatch.setattr(member._group, "answer", answer)
        return member.answer(ANSWERS, give_up), event


def test_S10_what_has_no_result_of_its_own_is_said_again(monkeypatch: pytest.MonkeyPatch) -> None:
    replies: list[Results | LakelogError] = [AWAY, [DONE, LOST, AWAY], [AWAY, OVER], [DONE]]
    results, event = answered(monkeypatch, replies, lambda: False)
    assert event == [[0, 1, 2], [0, 1, 2], [1, 2], [1]]
    assert results == [DONE, DONE, OVER]


def test_what_is_given_up_keeps_its_last_result(monkeypatch: pytest.MonkeyPatch) -> None:
    results, event = answered(monkeypatch, [[DONE, LOST, AWAY]], lambda: True)
    assert (results, len(event)) == ([DONE, LOST, AWAY], 1)
