"""The seam between the client's verbs about groups and what carries them; part of a transport, under the same rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from lakelog.client.group_values import (
    Answer,
    Answered,
    CommitWish,
    Consumed,
    ConsumeWish,
    DeadLetter,
    DeadPage,
    DeadWish,
    JoinWish,
    Redriven,
    RedriveWish,
)
from lakelog.errors import LakelogError
from lakelog.model.group import GroupInfo, GroupWish, Start
from lakelog.model.membership import Membership
from lakelog.model.progress import GroupDescription, GroupPage, PartitionProgress, TopicStats
from lakelog.model.seek import GroupPosition, Skipped, Sought


class AsyncGroupTransport(Protocol):
    """`seconds` is how long a call may take, the time that it asked the server to wait included."""

    async def consume(self, wish: ConsumeWish, seconds: float) -> Consumed: ...

    async def answer(
        self, topic: str, group: str, owner: str, answers: Sequence[Answer], seconds: float
    ) -> list[Answered | LakelogError]:
        """One result each, in order."""
        ...

    async def join(self, wish: JoinWish, seconds: float) -> Membership: ...

    async def heartbeat(self, group: str, member_id: str, generation: int, seconds: float) -> Membership: ...

    async def leave(self, group: str, member_id: str, seconds: float) -> None: ...

    async def list_groups(self, after: str | None, seconds: float) -> GroupPage:
        """One page of groups, by name: the first, or the one behind `after`."""
        ...

    async def describe(self, group: str, seconds: float) -> GroupDescription: ...

    async def alter(self, group: str, wish: GroupWish, seconds: float) -> GroupInfo: ...

    async def delete(self, group: str, seconds: float) -> None: ...

    async def pause(self, group: str | None, topic: str | None, seconds: float) -> None:
        """Of a group all topics or one; of a topic one group or all."""
        ...

    async def resume(self, group: str | None, topic: str | None, seconds: float) -> None: ...

    async def lag(self, group: str, topic: str | None, seconds: float) -> Sequence[PartitionProgress]: ...

    async def stats(self, topic: str, seconds: float) -> TopicStats: ...

    async def seek(
        self, group: str, topic: str, to: Start | str, partition: int | None, dry_run: bool, seconds: float
    ) -> Sequence[Sought]:
        """To a position, or to the message with an id."""
        ...

    async def skip(
        self, group: str, topic: str, partition: int, offset: int, dry_run: bool, seconds: float
    ) -> Skipped: ...

    async def positions(self, group: str, topic: str, seconds: float) -> Sequence[GroupPosition]:
        """Empty if the group has no position in the topic."""
        ...

    async def commit(self, group: str, wish: CommitWish, seconds: float) -> None: ...

    async def list_dead(self, group: str, wish: DeadWish, seconds: float) -> DeadPage: ...

    async def find_dead(self, group: str, message_id: str, seconds: float) -> DeadLetter: ...

    async def redrive(self, group: str, wish: RedriveWish, seconds: float) -> Redriven: ...

    async def discard(self, group: str, wish: DeadWish, seconds: float) -> int: ...
