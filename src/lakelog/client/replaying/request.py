"""The messages to replay, as callers name them and as offsets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from lakelog.client.values import ReplayedPartition
from lakelog.errors import InvalidRequest
from lakelog.model.arguments import check_time
from lakelog.model.names import check_name


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """The messages to replay of a topic, from a time up to another one; the name of the replay, and its target."""

    topic: str
    since: datetime | None = None
    until: datetime | None = None
    name: str | None = None
    to: str | None = None

    def __post_init__(self) -> None:
        for argument in ("since", "until"):
            if getattr(self, argument) is not None:
                check_time(argument, getattr(self, argument))
        if self.name is not None:
            check_name("replay", self.name)
            if self.to is not None and "." in self.name:
                # The first dot in the name of the group ends that of the replay.
                raise InvalidRequest(f"The name {self.name!r} of a replay into another topic must not have a dot.")
            check_name("group", self.group)

    @property
    def group(self) -> str:
        """The name of the cursor group that has the position. A replay without a name stores none in it.

        Replays into two topics have positions of their own, even if they have the same name.
        """
        target = "" if self.to is None else f".{self.to}"
        return f"replay-{self.name or 'unnamed'}{target}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRange:
    """The resolved range: offsets in the partitions of one incarnation of the topic.

    Attributes:
        incarnation: The incarnation of the topic.
        partitions: The range and the position in each partition.
        begun_at: When the first call with the name began; None if nothing is stored.
    """

    incarnation: int
    partitions: Sequence[ReplayedPartition]
    begun_at: datetime | None = None
