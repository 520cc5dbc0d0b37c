"""The options of a replay, checked when it is called."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from lakelog.client.functions import check_hook
from lakelog.client.values import ReplayProgress
from lakelog.client.worker.handlers import BatchHandler, Handler, HandlerFunction, Ignored, OnDead
from lakelog.errors import InvalidRequest
from lakelog.model.arguments import check_number, check_whole
from lakelog.model.limits import MAX_BATCH_MESSAGES

OnProgress = Callable[[ReplayProgress], Awaitable[object]] | Callable[[ReplayProgress], Ignored]
MIN_RATE, MAX_RATE = 0.001, 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """How the messages of a replay are handled. `lakelog.AsyncTopic.replay` describes each option."""

    handler: HandlerFunction[Any] | None = None
    concurrency: int = 1
    batch: int | None = None
    rate: float | None = None
    dry_run: bool = False
    on_error: OnDead[Any] | None = None
    on_progress: OnProgress | None = None

    def __post_init__(self) -> None:
        check_whole("concurrency", self.concurrency, 1)
        if self.batch is not None:
            check_whole("batch", self.batch, 1, MAX_BATCH_MESSAGES)
        if self.rate is not None:
            check_number("rate", self.rate, MIN_RATE, MAX_RATE)
        if self.on_error is not None:
            check_hook("on_error", self.on_error, ("delivery", "error"))
        if self.on_progress is not None:
            check_hook("on_progress", self.on_progress, ("progress",))
        if self.handler is None and not self.dry_run:
            raise InvalidRequest("A replay needs a `handler`. With dry_run=True, it only counts the messages.")

    def checked_handler(self) -> Handler:
        """Return the handler. Raise if it cannot be called with a value or a batch."""
        if self.handler is None:
            raise InvalidRequest("A replay needs a `handler`.")
        return Handler(self.handler) if self.batch is None else BatchHandler(self.handler)
