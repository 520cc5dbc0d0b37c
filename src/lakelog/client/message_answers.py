"""The interface of a batch to the consumer or worker that holds its messages. This module has no implementation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class BatchAnswers(Protocol):
    """Answers to the messages of a batch, in the event loop that holds them."""

    async def ack(self, held: Sequence[Any], failed: Mapping[Any, str]) -> None:
        """Ack the messages that have no answer yet. Those in `failed` become dead letters, with the given reasons."""
        ...

    async def nack(self, held: Sequence[Any], reason: str, delay_seconds: float | None) -> None:
        """Nack the messages that have no answer yet."""
        ...

    async def extend(self, held: Sequence[Any], seconds: float | None) -> None:
        """Give the program more time for the messages."""
        ...
