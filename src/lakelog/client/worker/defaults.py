"""The defaults of a client's subscriptions. An argument of `subscribe` goes before them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any

from lakelog.client.worker.options import Retries, StartFrom, SubscriptionOptions
from lakelog.model.group import Assignor, Order


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """The defaults of all subscriptions of a client, for `connect`. None leaves the built-in default.

    `retries`, `dead_letter`, `order` and `assignor` are settings of the group, as for `subscribe`: a worker that states
    other settings than the group has raises `GroupSettingsDiffer` when it starts.

    Args:
        concurrency: Handlers of a subscription that run at the same time, 1 or more. Built in: 1.
        batch_size: Messages that one call to the server returns at most, from 1 to 10,000. Built in: 50.
        prefetch: Messages that are leased ahead, 0 or more. Built in: automatic.
        retries: How often a message is delivered again after its handler failed. Built in: the group's.
        dead_letter: Keep a message that failed too often as a dead letter. Built in: the group's.
        start_from: Where a group begins that has not read the topic before. Built in: "latest".
        ack_timeout: How long a handler may take, in seconds or as a timedelta, above zero. Built in: 30 seconds.
        lease: How soon other members get the messages of a process that dies, in seconds or as a timedelta, from 0.1
            seconds to 12 hours. Built in: 30 seconds.
        order: "key", "partition" or "none". Built in: the group's.
        assignor: How partitions are shared among the members. Built in: the group's.
        session_timeout: How long a member stays in the group without a heartbeat, in seconds or as a timedelta, from
            0.5 seconds to 30 minutes. Built in: 30 seconds.
        heartbeat: The time between two heartbeats, in seconds or as a timedelta, above zero and shorter than
            `session_timeout`. Built in: a third of `session_timeout`, at most 10 seconds.

    Raises:
        InvalidRequest: A value is not valid.
    """

    concurrency: int | None = None
    batch_size: int | None = None
    prefetch: int | None = None
    retries: Retries | None = None
    dead_letter: bool | None = None
    start_from: StartFrom | None = None
    ack_timeout: timedelta | float | None = None
    lease: timedelta | float | None = None
    order: Order | str | None = None
    assignor: Assignor | str | None = None
    session_timeout: timedelta | float | None = None
    heartbeat: timedelta | float | None = None

    def __post_init__(self) -> None:
        subscription_options(self, {})


def subscription_options(defaults: Defaults, given: Mapping[str, Any]) -> SubscriptionOptions:
    """Return the options of a subscription: the given ones, then the defaults, then the built-in ones."""
    own = {each.name: getattr(defaults, each.name) for each in fields(defaults)}
    stated = {name: value for name, value in given.items() if value is not None}
    if "max_in_flight" in stated:
        # The limit of one subscription goes before a general `prefetch`.
        own.pop("prefetch")
    return SubscriptionOptions(**{name: value for name, value in own.items() if value is not None} | stated)
