"""The interface of a batch to the consumer or worker that holds its messages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

if TYPE_CHECKING:
    from lakelog.client.consumer.core import HeldMessage
    from lakelog.client.reading.messages import ReceivedMessage

H_co = TypeVar("H_co", bound="HeldMessage", covariant=True)


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


class HeldSequence(Sequence[H_co], ABC):
    """The messages of a batch, each as the object for its answer. These objects may be made when they are needed."""

    @property
    @abstractmethod
    def messages(self) -> Sequence[ReceivedMessage[Any]]:
        """The messages, without objects for answers."""


class HeldList(HeldSequence[H_co]):
    """Messages whose objects for answers exist."""

    def __init__(self, held: Sequence[H_co] = ()) -> None:
        self._held = held

    @property
    def messages(self) -> Sequence[ReceivedMessage[Any]]:
        return [each.message for each in self._held]

    @overload
    def __getitem__(self, index: int) -> H_co: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[H_co]: ...

    def __getitem__(self, index: Any) -> Any:
        return self._held[index]

    def __iter__(self) -> Iterator[H_co]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)
