"""The options of a consumer, checked when it is made."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from lakelog.client.consumer.host_identity import resumable_group
from lakelog.client.publishing.codec import Codec
from lakelog.client.worker.options import Retries, StartFrom, SubscriptionOptions
from lakelog.errors import InvalidRequest
from lakelog.model.arguments import check_seconds, check_text
from lakelog.model.group import Assignor, GroupKind, Order
from lakelog.model.limits import MAX_JOINED_TOPICS
from lakelog.model.names import check_name

Mode = Literal["real-time", "resumable", "load-balanced"]
Commit = Literal["immediate", "interval", "rolling", "manual"]

_MODES = ("real-time", "resumable", "load-balanced")
_COMMITS = ("immediate", "interval", "rolling", "manual")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerTopic:
    """A topic of a consumer, and how to decode its values."""

    name: str
    codec: Codec[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """The options of a consumer. None means the default."""

    topics: tuple[ConsumerTopic, ...]
    group: str | None = None
    mode: Mode | None = None
    host_id: str | None = None
    kind: GroupKind | str | None = None
    commit: Commit | None = None
    commit_interval: timedelta | float = 5.0
    start_from: StartFrom | None = None
    prefetch: int | None = None
    ack_timeout: timedelta | float = 300.0
    lease: timedelta | float = 30.0
    order: Order | str | None = None
    filter: str | None = None
    retries: Retries | None = None
    dead_letter: bool | None = None
    assignor: Assignor | str | None = None
    session_timeout: timedelta | float = 30.0
    heartbeat: timedelta | float | None = None

    def __post_init__(self) -> None:
        if not 1 <= len(self.topics) <= MAX_JOINED_TOPICS:
            raise InvalidRequest(f"A consumer reads 1 to {MAX_JOINED_TOPICS} topics.")
        names = [check_name("topic", each.name) for each in self.topics]
        if len(set(names)) < len(names):
            raise InvalidRequest("A topic is named twice.")
        if self.group is not None:
            check_name("group", self.group)
        if self.mode not in (None, *_MODES):
            raise InvalidRequest(f"`mode` must be one of {_named(_MODES)}, not {self.mode!r}.")
        if self.commit not in (None, *_COMMITS):
            raise InvalidRequest(f"`commit` must be one of {_named(_COMMITS)}, not {self.commit!r}.")
        if self.filter is not None and not isinstance(self.filter, str):
            raise InvalidRequest("`filter` must be a text, such as 'value.total > 100'.")
        if self.host_id is not None:
            check_text("host_id", self.host_id)
        check_seconds("commit_interval", self.commit_interval)
        self._check_group()
        self.member_options()

    def _check_group(self) -> None:
        if self.group_kind not in (None, "lease", "cursor"):
            raise InvalidRequest(f"`kind` must be 'lease' or 'cursor', not {self.kind!r}.")
        if self.mode == "load-balanced" and self.group is None:
            raise InvalidRequest("A load-balanced consumer needs a `group`.")
        if self.mode == "real-time" and self.group is not None:
            raise InvalidRequest("A real-time consumer has no group. Omit `group` or `mode`.")
        if self.group_kind is None and (self.kind is not None or self.commit not in (None, "manual")):
            raise InvalidRequest("A consumer without a group commits nothing. Give a `group`, or mode='resumable'.")
        if self.group_kind == "lease" and self.commit not in (None, "manual", "immediate"):
            raise InvalidRequest(
                "A lease group acks each message: `commit` is 'manual' or 'immediate'. For commits of positions, "
                "use kind='cursor'."
            )

    @property
    def group_kind(self) -> str | None:
        """The kind of the group; None for a consumer without a group."""
        if self.group is None and self.mode != "resumable":
            return None
        return str(self.kind or ("cursor" if self.mode == "resumable" else "lease"))

    @property
    def group_name(self) -> str | None:
        """The name of the group: the given one, that of this host, or none."""
        if self.mode == "resumable" and self.group is None:
            return resumable_group(self.host_id)
        return self.group

    @property
    def commit_mode(self) -> Commit:
        """How messages are committed."""
        if self.commit is not None:
            return self.commit
        return "interval" if self.group_kind == "cursor" else "manual"

    @property
    def commit_seconds(self) -> float:
        """The interval of commits, or the delay of rolling commits."""
        return check_seconds("commit_interval", self.commit_interval)

    def member_options(self) -> SubscriptionOptions:
        """Return the options of the member of the group."""
        return SubscriptionOptions(
            prefetch=self.prefetch,
            filter=self.filter,
            retries=self.retries,
            dead_letter=self.dead_letter,
            start_from=self.start_from,
            ack_timeout=self.ack_timeout,
            lease=self.lease,
            order=self.order,
            assignor=self.assignor,
            session_timeout=self.session_timeout,
            heartbeat=self.heartbeat,
        )


def _named(choices: tuple[str, ...]) -> str:
    return ", ".join(repr(each) for each in choices)
