"""How far a consumer of positions is in a partition: what it handed out, and up to where the program is done.

It only computes. `cursor_member` commits.
"""

from __future__ import annotations

import time
from collections.abc import Iterable


class ReadProgress:
    """The progress in one partition. Messages are handed out in order, and may be done in any order."""

    def __init__(self, offset: int, epoch: int = 0) -> None:
        self.given = offset
        """The offset after the last message that was handed out, and after those behind it that the group does not get.
        """
        self.committed = offset
        """The committed position, as far as this consumer knows."""
        self.epoch = epoch
        """The position epoch of the group."""
        self._open: dict[int, float] = {}
        """The messages that the program works on, with the times at which they were handed out."""

    @property
    def done(self) -> int:
        """The position up to which the program is done with all messages."""
        return next(iter(self._open), self.given)

    def give(self, offsets: Iterable[int]) -> None:
        """Record messages that the program gets."""
        now = time.monotonic()
        for offset in offsets:
            self._open[offset] = now
            self.given = offset + 1

    def reach(self, offset: int) -> None:
        """Record that the messages below an offset were handed out or are not for the group."""
        self.given = max(self.given, offset)

    def finish(self, offsets: Iterable[int]) -> None:
        """Record messages that the program is done with."""
        for offset in offsets:
            self._open.pop(offset, None)

    def finish_through(self, offset: int) -> None:
        """Record that the program is done with a message and all before it."""
        self.finish([each for each in self._open if each <= offset])

    def finish_older(self, before: float) -> None:
        """Record that the program is done with all messages that were handed out before that time."""
        self.finish([offset for offset, since in self._open.items() if since <= before])
