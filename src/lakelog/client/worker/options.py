"""The options of a subscription: checked once when it is made, and turned into the request to the server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

from lakelog.client.functions import check_function, check_hook
from lakelog.client.publishing.codec import Codec
from lakelog.client.worker.handlers import Filter, Handler, Once
from lakelog.client.worker.once import check_once
from lakelog.errors import InvalidRequest
from lakelog.model import group as model
from lakelog.model.arguments import (
    check_flag,
    check_positive_seconds,
    check_seconds,
    check_text,
    check_time,
    check_whole,
    refusal,
)
from lakelog.model.filter import parse
from lakelog.model.group import (
    MAX_RETRIES,
    MAX_WINDOW,
    Assignor,
    Exponential,
    NewGroupSettings,
    Order,
    RetryPolicy,
)
from lakelog.model.limits import MAX_BATCH_MESSAGES
from lakelog.model.names import check_name

StartFrom = Literal["earliest", "latest", "none"] | datetime | int
Retries = RetryPolicy | int
Hook = Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionOptions:
    """The options of a subscription. None means the group's setting."""

    concurrency: int = 1
    batch: int | None = None
    """The most messages of one call of the handler. None means a handler of single messages."""
    batch_wait: timedelta | float = 1.0
    batch_size: int = 50
    max_in_flight: int | None = None
    prefetch: int | None = None
    filter: Filter[Any] | None = None
    once: Once[Any] | None = None
    retries: Retries | None = None
    dead_letter: bool | None = None
    on_dead: Hook | None = None
    on_ack: Hook | None = None
    start_from: StartFrom | None = None
    """The start of a new group. None means latest, and is not sent."""
    ack: Literal["auto", "manual"] = "auto"
    ack_timeout: timedelta | float = 30.0
    lease: timedelta | float = model.DEFAULT_LEASE_MS / 1000
    order: Order | str | None = None
    assignor: Assignor | str | None = None
    session_timeout: timedelta | float = model.DEFAULT_SESSION_MS / 1000
    heartbeat: timedelta | float | None = None

    def __post_init__(self) -> None:
        check_whole("concurrency", self.concurrency, 1)
        check_whole("batch_size", self.batch_size, 1, MAX_BATCH_MESSAGES)
        if self.max_in_flight is not None:
            check_whole("max_in_flight", self.max_in_flight, 1)
        if self.prefetch is not None:
            check_whole("prefetch", self.prefetch, 0)
        self._check_batch()
        if self.ack not in ("auto", "manual"):
            raise InvalidRequest(f"`ack` must be 'auto' or 'manual', not {self.ack!r}.")
        check_seconds("lease", self.lease, model.MIN_LEASE_MS / 1000, model.MAX_LEASE_MS / 1000)
        check_seconds("session_timeout", self.session_timeout, model.MIN_SESSION_MS / 1000, model.MAX_SESSION_MS / 1000)
        check_positive_seconds("ack_timeout", self.ack_timeout)
        if self.heartbeat_seconds is not None and self.heartbeat_seconds * 1000 >= self.session_ms:
            limit = f"shorter than `session_timeout`, which is {self.session_ms / 1000:g} s"
            raise refusal("heartbeat", limit, self.heartbeat)
        self._check_functions()
        self.group_settings()

    def _check_batch(self) -> None:
        check_seconds("batch_wait", self.batch_wait)
        if self.batch is None:
            return
        check_whole("batch", self.batch, 1, MAX_BATCH_MESSAGES)
        if self.max_in_flight is not None and self.max_in_flight < self.batch:
            raise refusal("max_in_flight", f"at least `batch`, which is {self.batch}", self.max_in_flight)

    def _check_functions(self) -> None:
        if isinstance(self.filter, str):
            if self.filter:
                parse(self.filter)
        elif self.filter is not None:
            check_function("filter", self.filter, ("value",))
        if self.once is not None:
            check_once(self.once)
        check_hooks(self.on_ack, self.on_dead)

    @property
    def most_per_call(self) -> int:
        """The number of messages that one call to the server returns at most."""
        return max(self.batch_size, self.batch or 0)

    @property
    def batch_wait_seconds(self) -> float:
        return check_seconds("batch_wait", self.batch_wait)

    @property
    def lease_ms(self) -> int:
        return round(check_seconds("lease", self.lease) * 1000)

    @property
    def heartbeat_seconds(self) -> float | None:
        return None if self.heartbeat is None else check_positive_seconds("heartbeat", self.heartbeat)

    @property
    def session_ms(self) -> int:
        return round(check_seconds("session_timeout", self.session_timeout) * 1000)

    @property
    def timeout_seconds(self) -> float:
        return check_seconds("ack_timeout", self.ack_timeout)

    def group_settings(self) -> NewGroupSettings:
        """Return the group settings that the server gets."""
        return group_settings(
            order=self.order,
            filter=self.filter if isinstance(self.filter, str) else None,
            retries=self.retries,
            dead_letter=self.dead_letter,
            assignor=self.assignor,
            start_from=self.start_from,
        )


def check_hooks(on_ack: Hook | None, on_dead: Hook | None) -> None:
    """Raise if one of the hooks cannot be called."""
    if on_ack is not None:
        check_hook("on_ack", on_ack, ("delivery",))
    if on_dead is not None:
        check_hook("on_dead", on_dead, ("delivery", "error"))


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicHooks:
    """The hooks of a topic, which run for all its subscriptions of a client, in the order in which they were given."""

    on_ack: list[Hook] = field(default_factory=list)
    on_dead: list[Hook] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSource:
    """A topic that a member of a group consumes.

    Attributes:
        topic: The name of the topic.
        group: The name of the group.
        codec: Decodes the values.
        options: How the member works.
    """

    topic: str
    group: str
    codec: Codec[Any]
    options: SubscriptionOptions

    def __post_init__(self) -> None:
        check_name("group", self.group)

    @property
    def name(self) -> str:
        """The name in log lines and counts: "topic/group"."""
        return f"{self.topic}/{self.group}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription(GroupSource):
    """A handler for the messages of a topic, as a member of a group.

    Attributes:
        topic: The name of the topic.
        group: The name of the group.
        handler: The function that handles a message.
        codec: Decodes the values.
        options: How the subscription works.
        topic_hooks: The hooks of the topic. They run after those of the options.
    """

    handler: Handler
    topic_hooks: TopicHooks = field(default_factory=TopicHooks)

    @property
    def on_ack(self) -> tuple[Hook, ...]:
        """The functions to call after an ack was accepted."""
        own = self.options.on_ack
        return (*(() if own is None else (own,)), *self.topic_hooks.on_ack)

    @property
    def on_dead(self) -> tuple[Hook, ...]:
        """The functions to call after a message became a dead letter."""
        own = self.options.on_dead
        return (*(() if own is None else (own,)), *self.topic_hooks.on_dead)


def group_settings(
    *,
    order: Order | str | None = None,
    filter: str | None = None,
    retries: Retries | None = None,
    dead_letter: bool | None = None,
    assignor: Assignor | str | None = None,
    window: int | None = None,
    start_from: StartFrom | None = None,
) -> NewGroupSettings:
    """Return the settings of a group from the arguments of a caller."""
    return NewGroupSettings(
        order=_choice(Order, "order", order),
        filter=None if filter is None else check_text("filter", filter),
        retries=_policy(retries),
        dead_letter=None if dead_letter is None else check_flag("dead_letter", dead_letter),
        assignor=_choice(Assignor, "assignor", assignor),
        window=None if window is None else check_whole("window", window, 1, MAX_WINDOW),
        start_from=None if start_from is None else _start(start_from),
    )


def _policy(retries: Retries | None) -> RetryPolicy | None:
    if retries is None or isinstance(retries, RetryPolicy):
        return retries
    if type(retries) is not int:
        raise refusal("retries", "a whole number, lakelog.Exponential(…) or lakelog.Fixed(…)", retries)
    return Exponential(max=check_whole("retries", retries, 0, MAX_RETRIES))


def _start(start: StartFrom) -> str | int:
    if isinstance(start, datetime):
        return check_time("start_from", start).isoformat()
    if start not in ("earliest", "latest", "none") and (type(start) is not int or start < 0):
        raise refusal("start_from", "'earliest', 'latest', 'none', a datetime with a time zone, or an offset", start)
    return start


def _choice(kind: Any, name: str, wanted: str | None) -> Any:
    try:
        return None if wanted is None else kind(wanted)
    except ValueError as exc:
        choices = ", ".join(repr(str(each)) for each in kind)
        raise InvalidRequest(f"`{name}` must be one of {choices}, not {wanted!r}.") from exc
