"""What a subscription is told: checked once, when it is made, and turned into what the server is asked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal

from lakelog.client.codec import Codec
from lakelog.client.positions import position_of, seconds_of
from lakelog.client.work.handlers import Handler
from lakelog.errors import InvalidRequest
from lakelog.model import group as model
from lakelog.model.group import Assignor, Exponential, GroupKind, GroupWish, NoStart, Order, RetryPolicy, Start
from lakelog.model.limits import MAX_BATCH_MESSAGES
from lakelog.model.names import check_name

StartFrom = Literal["earliest", "latest", "none"] | datetime | int
Retries = RetryPolicy | int
Filter = str | Callable[[Any], bool]
Hook = Callable[..., Awaitable[None] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a subscription works. What is None is not said, and the group's own setting holds."""

    concurrency: int = 1
    batch_size: int = 50
    max_in_flight: int | None = None
    filter: Filter | None = None
    retries: Retries | None = None
    dead_letter: bool | None = None
    on_dead: Hook | None = None
    on_ack: Hook | None = None
    start_from: StartFrom = "latest"
    ack: Literal["auto", "manual"] = "auto"
    ack_timeout: timedelta | float = 30.0
    lease: timedelta | float = model.DEFAULT_LEASE_MS / 1000
    order: Order | str | None = None
    assignor: Assignor | str | None = None
    session_timeout: timedelta | float = model.DEFAULT_SESSION_MS / 1000
    heartbeat: timedelta | float | None = None

    def __post_init__(self) -> None:
        if self.concurrency < 1 or (self.max_in_flight or 1) < 1:
            raise InvalidRequest("A subscription runs and holds at least one message at a time.")
        if not 1 <= self.batch_size <= MAX_BATCH_MESSAGES:
            raise InvalidRequest(f"A batch size is 1 to {MAX_BATCH_MESSAGES}.")
        if self.ack not in ("auto", "manual"):
            raise InvalidRequest(f"`ack` is 'auto' or 'manual', not {self.ack!r}.")
        _within("lease", self.lease_ms, model.MIN_LEASE_MS, model.MAX_LEASE_MS)
        _within("session_timeout", self.session_ms, model.MIN_SESSION_MS, model.MAX_SESSION_MS)
        if self.timeout_seconds <= 0:
            raise InvalidRequest("`ack_timeout` is above zero.")
        if self.heartbeat is not None and not 0 < seconds_of(self.heartbeat) * 1000 < self.session_ms:
            raise InvalidRequest("`heartbeat` is above zero, and shorter than `session_timeout`.")
        self.wish()

    @property
    def held(self) -> int:
        """How many messages may be in hand."""
        return self.max_in_flight or self.concurrency

    @property
    def lease_ms(self) -> int:
        return round(seconds_of(self.lease) * 1000)

    @property
    def session_ms(self) -> int:
        return round(seconds_of(self.session_timeout) * 1000)

    @property
    def timeout_seconds(self) -> float:
        return seconds_of(self.ack_timeout)

    def wish(self) -> GroupWish:
        """What the server is told about the group."""
        stated = wish_of(
            order=self.order,
            filter=self.filter if isinstance(self.filter, str) else None,
            retries=self.retries,
            dead_letter=self.dead_letter,
            assignor=self.assignor,
        )
        return replace(stated, kind=GroupKind.LEASE, start=start_of(self.start_from))


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """A handler for the messages of a topic, as a member of a group."""

    topic: str
    group: str
    handler: Handler
    codec: Codec[Any]
    options: Options

    def __post_init__(self) -> None:
        check_name("group", self.group)

    @property
    def name(self) -> str:
        return f"{self.topic}/{self.group}"


def wish_of(
    *,
    order: Order | str | None = None,
    filter: str | None = None,
    retries: Retries | None = None,
    dead_letter: bool | None = None,
    assignor: Assignor | str | None = None,
    window: int | None = None,
) -> GroupWish:
    """A group's settings as callers write them."""
    return GroupWish(
        order=_choice(Order, "order", order),
        filter=filter,
        retries=Exponential(max=retries) if isinstance(retries, int) else retries,
        dead_letter=dead_letter,
        assignor=_choice(Assignor, "assignor", assignor),
        window=window,
    )


def start_of(start: StartFrom) -> Start:
    if start == "none":
        return NoStart()
    if isinstance(start, datetime):
        return position_of(time=start)
    return position_of(start)


def _choice(kind: Any, name: str, wanted: str | None) -> Any:
    try:
        return None if wanted is None else kind(wanted)
    except ValueError as exc:
        raise InvalidRequest(f"`{name}` is one of {', '.join(str(each) for each in kind)}, not {wanted!r}.") from exc


def _within(name: str, found: int, least: int, most: int) -> None:
    if not least <= found <= most:
        raise InvalidRequest(f"`{name}` is {least / 1000:g} to {most / 1000:g} seconds, not {found / 1000:g}.")
