"""One partition of a replay: the messages in work, and the position up to which all are finished. It only computes.

The messages in work are split into lanes, by key. Each lane is handled in order, so the messages of a key are too.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any
from zlib import crc32

from lakelog.client.reading.messages import ReceivedMessage
from lakelog.client.values import ReplayedPartition


class Lane:
    """Messages that are handled one after another. A thread may handle them while the event loop reads `done`."""

    def __init__(self, messages: Sequence[ReceivedMessage[Any]]) -> None:
        self.messages = messages
        self.done = 0
        """How many messages are finished."""

    @property
    def next_offset(self) -> int | None:
        """The offset of the first message that is not finished; None if all are."""
        done = self.done
        return self.messages[done].offset if done < len(self.messages) else None


class PartitionReplay:
    """The progress in one partition."""

    def __init__(self, partition: ReplayedPartition) -> None:
        self.partition = partition.partition
        self.end = partition.end
        self.next = partition.position
        """The offset after the messages that were started."""
        self.lanes: list[Lane] = []
        """The messages in work."""
        self.retired = 0
        self._partition = partition
        self._finished = 0

    def start(self, messages: Sequence[ReceivedMessage[Any]], lanes: int) -> list[Lane]:
        """Take in messages to handle, in at most that many lanes."""
        self._finished, self.lanes = self.finished, split(messages, lanes)
        self.next = messages[-1].offset + 1
        return self.lanes

    def skip_to(self, offset: int) -> None:
        """Record that retention has removed the messages before an offset."""
        offset = min(offset, self.end)
        if offset > self.next:
            self.retired += offset - self.next
            self.next = offset

    @property
    def finished(self) -> int:
        """How many messages are finished."""
        return self._finished + sum(lane.done for lane in self.lanes)

    @property
    def position(self) -> int:
        """The offset up to which all messages are finished."""
        return min((offset for lane in self.lanes if (offset := lane.next_offset) is not None), default=self.next)

    def progress(self) -> ReplayedPartition:
        """Return the range with the current position."""
        return self._partition._replace(position=self.position)


def split(messages: Sequence[ReceivedMessage[Any]], lanes: int) -> list[Lane]:
    """Return the messages in at most that many lanes. Messages of a key share a lane; others take turns."""
    if lanes == 1:
        return [Lane(messages)]
    found: list[list[ReceivedMessage[Any]]] = [[] for _ in range(lanes)]
    turns = count()
    for message in messages:
        number = next(turns) if message.key is None else crc32(message.key)
        found[number % lanes].append(message)
    return [Lane(each) for each in found if each]
