"""Selects messages that were read, by key or filter. The work for one message and for one call is bounded.

Groups evaluate filters in the engine. This module is for programs that search through messages, such as the console.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lakelog.client.reading.messages import ReceivedMessage
from lakelog.model.filter import Filter, FilterInput
from lakelog.model.like import OutOfSteps, StepBudget

MESSAGE_STEPS = 1 << 26
"""The most steps of a filter for one message, about 0.1 s. A message that needs more does not match."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadline:
    """The time at which a search stops.

    Attributes:
        at: The time, in seconds of the clock.
        clock: Returns the present time in seconds.
    """

    at: float
    clock: Callable[[], float]

    @property
    def is_over(self) -> bool:
        return self.clock() >= self.at


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The conditions under which a message is selected.

    Attributes:
        key: The key; None for any.
        filter: The filter that must be true; None for none.
    """

    key: bytes | None = None
    filter: Filter | None = None

    def matches(self, message: ReceivedMessage[Any]) -> bool:
        """Return whether the message is selected."""
        if self.key is not None and message.key != self.key:
            return False
        if self.filter is None:
            return True
        try:
            return self.filter.matches(_input_of(message))
        except OutOfSteps:
            return False

    def select(
        self, messages: Sequence[ReceivedMessage[Any]], *, most: int, deadline: Deadline
    ) -> tuple[list[ReceivedMessage[Any]], int]:
        """Return the messages that are selected, and how many were examined: all, unless a limit is reached.

        Call it in a thread of its own if there is a filter.

        Args:
            messages: The messages to examine.
            most: The most messages to return, at least one.
            deadline: When to stop. At least one message is examined.
        """
        found: list[ReceivedMessage[Any]] = []
        for number, message in enumerate(messages, 1):
            if self.matches(message):
                found.append(message)
            if len(found) == most or (self.filter is not None and deadline.is_over):
                return found, number
        return found, len(messages)


def _input_of(message: ReceivedMessage[Any]) -> FilterInput:
    return FilterInput(
        key=message.key,
        headers=message.headers,
        value=message.raw,
        content_type=message.content_type,
        correlation_id=message.correlation_id,
        offset=message.offset,
        partition=message.partition,
        steps=StepBudget(MESSAGE_STEPS),
    )
