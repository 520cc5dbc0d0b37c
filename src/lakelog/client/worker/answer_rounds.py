"""Splits the answers to many messages into rounds, so that the messages of a key are answered in order.

The server refuses an answer to a message while an earlier message of its key is open. Different answers to the messages
of a key therefore go one after another, each after the previous one is accepted. This module sends nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from lakelog.client.worker.leased_message import LeasedMessage, key_of
from lakelog.model.group import Order
from lakelog.model.lease import Verb

M = TypeVar("M", bound=LeasedMessage)


# Compared by identity: errors of users need not be hashable.
@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """The answer that messages get. Messages with the same decision are answered together."""

    verb: Verb
    reason: str = ""
    error: BaseException | None = None
    delay_seconds: float | None = None

    @property
    def delay_ms(self) -> int | None:
        return None if self.delay_seconds is None else round(self.delay_seconds * 1000)


ACK = Decision(Verb.ACK)


def in_rounds(messages: Iterable[M], decide: Callable[[M], Decision], order: Order) -> list[dict[M, Decision]]:
    """Return the messages with their answers, in rounds: in a round, the messages of a key have the same answer."""
    rounds: list[dict[M, Decision]] = []
    last: dict[object, tuple[Decision, int]] = {}
    for leased in messages:
        decision, number = decide(leased), 0
        key = key_of(leased, order)
        if key is not None:
            if key in last:
                previous, number = last[key]
                number += previous is not decision
            last[key] = (decision, number)
        if number == len(rounds):
            rounds.append({})
        rounds[number][leased] = decision
    return rounds
