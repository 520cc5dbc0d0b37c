"""The failures that a test has ordered: of the next runs of a handler, or of the next publishes to a topic."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable


class OrderedFaults:
    """Errors to raise, by handler or topic, in the order in which they were added."""

    def __init__(self) -> None:
        self._errors: dict[Hashable, deque[Exception]] = {}

    def add(self, target: Hashable, error: Exception, times: int) -> None:
        """Raise the error at the next uses of the target."""
        self._errors.setdefault(target, deque()).extend([error] * times)

    def take(self, target: Hashable) -> Exception | None:
        """Return the error of this use of the target, or None."""
        left = self._errors.get(target)
        return left.popleft() if left else None
