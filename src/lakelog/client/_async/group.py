"""A group: its progress, and the methods that change it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import UNSET, UnsetType

from lakelog.client._async.calls import AsyncCalls
from lakelog.client._async.dead_letters import AsyncDeadLetters
from lakelog.client.values import Consumed
from lakelog.client.worker.options import Retries, group_settings
from lakelog.errors import LakelogError
from lakelog.model.arguments import check_flag, check_time
from lakelog.model.dead_letter_retention import DeadLetterRetentionChange
from lakelog.model.group import AlterGroupRequest, Assignor, GroupInfo, Order
from lakelog.model.history import GroupHistory, HistoryQuery
from lakelog.model.lease import Answered, AnswersRequest, ConsumeRequest, LeaseAnswer
from lakelog.model.membership import HeartbeatRequest, JoinRequest, LeaveRequest, Membership
from lakelog.model.names import check_name
from lakelog.model.progress import GroupDescription, GroupRequest, GroupTopicQuery, PartitionProgress, PauseRequest
from lakelog.model.seek import CommitRequest, GroupPosition, PartitionOffset, PositionsRequest
from lakelog.model.structs import checked
from lakelog.wire.operations import groups as operations


class AsyncGroup:
    """A group, made by `log.group(name)`. On the server, the group is created when its first member joins.

    Attributes:
        name: The name of the group.
    """

    def __init__(self, name: str, calls: AsyncCalls) -> None:
        self.name = name
        self._calls = calls

    async def describe(self) -> GroupDescription:
        """Return members, progress, leases, and the reasons why unfinished messages wait."""
        return await self._calls.call(operations.DESCRIBE_GROUP, GroupRequest(group=self.name))

    async def lag(self, topic: str | None = None) -> int:
        """Return how many messages the group has not finished.

        Args:
            topic: The only topic to count. Default: all topics that the group reads.
        """
        return sum(each.lag for each in await self.progress(topic))

    async def progress(self, topic: str | None = None) -> list[PartitionProgress]:
        """Return the progress of the group in each partition: committed offset, lag, leases, and counts by outcome.

        Args:
            topic: The only topic to return. Default: all topics that the group reads.
        """
        _check_topic(topic)
        return [*(await self._calls.call(operations.LAG, GroupTopicQuery(group=self.name, topic=topic))).partitions]

    async def history(
        self,
        topic: str | None = None,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        partitions: bool = False,
    ) -> GroupHistory:
        """Return lag, age and throughput over time. One sample a minute is taken.

        The samples of a minute are kept for 2 days, those of ten minutes for 30 days, and those of an hour for 400
        days. The points are as close as the samples of the time allow, and at most 1,500.

        Args:
            topic: The only topic. Default: the sum of all topics that the group reads.
            since: The beginning of the time. Default: an hour before `until`.
            until: The end of the time. Default: now.
            partitions: Return also the lag of each partition of `topic`. Default: False.
        """
        _check_topic(topic)
        query = HistoryQuery(
            group=self.name,
            topic=topic,
            since=since and check_time("since", since),
            until=until and check_time("until", until),
            partitions=check_flag("partitions", partitions),
        )
        return await self._calls.call(operations.GROUP_HISTORY, query)

    async def pause(self, topic: str | None = None) -> None:
        """Stop the delivery of messages to the group. Running handlers finish, and their acks are accepted.

        Args:
            topic: The only topic to pause. Default: all topics.
        """
        _check_topic(topic)
        await self._calls.call(operations.PAUSE_GROUP, PauseRequest(group=self.name, topic=topic))

    async def resume(self, topic: str | None = None) -> None:
        """Continue the delivery of messages after `pause`.

        Args:
            topic: The only topic to resume. Default: all topics.
        """
        _check_topic(topic)
        await self._calls.call(operations.RESUME_GROUP, PauseRequest(group=self.name, topic=topic))

    async def alter(
        self,
        *,
        order: Order | str | None = None,
        filter: str | None = None,
        retries: Retries | None = None,
        dead_letter: bool | None = None,
        assignor: Assignor | str | None = None,
        window: int | None = None,
        dead_letter_max_age: timedelta | UnsetType | None = UNSET,
        dead_letter_max_count: int | UnsetType | None = UNSET,
        topic: str | None = None,
        inherit: bool = False,
    ) -> GroupInfo:
        """Change settings of the group, for all its members. Return the group. Omitted settings stay unchanged.

        `filter`, `retries` and `dead_letter` can also be set for one topic, with `topic`. They override the settings
        of the group there. An installation whose feature level is below 3 raises `Conflict`.

        Args:
            order: "key", "partition" or "none": which messages run one after another.
            filter: Which messages the group gets, such as `"value.total > 100"`. An empty text removes the filter.
            retries: How often a failed message is delivered again: a number from 0 to 1000, `lakelog.Exponential(…)`
                or `lakelog.Fixed(…)`.
            dead_letter: Keep messages that failed too often as dead letters; False discards them.
            assignor: "cooperative-sticky", "sticky", "range" or "round-robin": how partitions are shared.
            window: The largest number of messages of one partition that are leased or wait for a retry, from 1 to
                10,000.
            dead_letter_max_age: Dead letters that died longer ago than this are removed, in any state; None removes
                the limit.
            dead_letter_max_count: How many dead letters to keep in each partition, from 1 to 1,000,000, and as many
                that are redriven or discarded. The oldest are removed first. None removes the limit.
            topic: The only topic in which the settings change. Default: None, the settings of the group.
            inherit: Remove the settings of the topic first, so that those of the group apply to it again. Default:
                False.
        """
        _check_topic(topic)
        settings = group_settings(
            order=order, filter=filter, retries=retries, dead_letter=dead_letter, assignor=assignor, window=window
        )
        retention = DeadLetterRetentionChange.of(dead_letter_max_age, dead_letter_max_count)
        request = AlterGroupRequest(
            group=self.name,
            dead_letter_retention=retention,
            topic=topic,
            inherit=check_flag("inherit", inherit),
            **settings.stated_by_name(),
        )
        return await self._calls.call(operations.ALTER_GROUP, request)

    async def delete(self) -> None:
        """Delete the group with its progress and its dead letters. A group that has members raises `GroupBusy`."""
        await self._calls.call(operations.DELETE_GROUP, GroupRequest(group=self.name))

    # For those who run handlers elsewhere, and so do themselves what a worker does -----------------------------------

    async def consume(self, request: ConsumeRequest, *, repeat: bool = False) -> Consumed:
        """Lease messages, for programs that run handlers themselves. `topic.subscribe` does this for you.

        Args:
            request: Topic, group, owner, request id, and how many messages. A repeat with the same owner and request
                id gets the same leases again.
            repeat: Whether the request was sent before, and its reply was lost. Default: False.
        """
        transport = self._calls.transport
        attempts = itertools.count()

        async def call(left: float) -> Consumed:
            return await transport.consume(request, left, repeat or next(attempts) > 0)

        return await self._calls.run(call, safe=True, wait_seconds=request.wait_ms / 1000)

    async def answer(self, topic: str, owner: str, answers: Sequence[LeaseAnswer]) -> list[Answered | LakelogError]:
        """Answer leased messages. Return one result for each answer, in order. Repeating the call is safe.

        Args:
            topic: The topic of the messages.
            owner: The owner that leased them.
            answers: Acks, nacks and other answers, each with the partition, the token and the offsets.
        """
        said = tuple(checked(each) for each in answers)
        request = AnswersRequest(topic=topic, group=self.name, owner=owner, answers=said)
        transport = self._calls.transport
        return await self._calls.run(lambda left: transport.answer(request, left), safe=True)

    # For consumers that keep positions, instead of answering messages one by one ------------------------------------

    async def join(self, request: JoinRequest) -> Membership:
        """Become a member of the group, or stay one. Return the partitions of the member.

        Args:
            request: The member's id and topics, its session timeout, and the settings of the group.
        """
        return await self._calls.call(operations.JOIN, request)

    async def heartbeat(self, member_id: str, generation: int, client: str | None = None) -> Membership:
        """Keep a member in the group. Return its current partitions.

        Args:
            member_id: The id of the member. A member that is no longer in the group raises `UnknownMember`.
            generation: The last generation that the member received.
            client: The program of the member, such as "spark: totals"; shown with its address. Default: unchanged.
        """
        request = HeartbeatRequest(group=self.name, member_id=member_id, generation=generation, client=client)
        return await self._calls.call(operations.HEARTBEAT, request)

    async def leave(self, member_id: str) -> None:
        """Remove a member from the group. Its partitions go to other members immediately.

        Args:
            member_id: The id of the member. Leaving without being a member is not an error.
        """
        await self._calls.call(operations.LEAVE, LeaveRequest(group=self.name, member_id=member_id))

    async def positions(self, topic: str) -> Mapping[int, GroupPosition]:
        """Return the position of a cursor group in each partition; an empty dict if it has none in the topic.

        Args:
            topic: The name of the topic.
        """
        found = await self._calls.call(operations.POSITIONS, PositionsRequest(group=self.name, topic=topic))
        return {each.partition: each for each in found.positions}

    async def commit(
        self,
        topic: str,
        positions: Mapping[int, int],
        *,
        member_id: str | None = None,
        generation: int | None = None,
        epoch: int | None = None,
    ) -> None:
        """Commit positions of a cursor group. Repeating the call is safe.

        Args:
            topic: The name of the topic.
            positions: The offset to read next, by partition.
            member_id: The member that commits. One that was replaced is refused.
            generation: The generation of the member. Needed with `member_id`.
            epoch: The epoch of the positions that were read before. After a seek, a commit with an older epoch raises
                `PositionRefused`.
        """
        request = CommitRequest(
            group=self.name,
            topic=topic,
            positions=tuple(
                PartitionOffset(partition=partition, offset=offset) for partition, offset in sorted(positions.items())
            ),
            member_id=member_id,
            generation=generation,
            epoch=epoch,
        )
        await self._calls.call(operations.COMMIT, request)

    def dead_letters(self, topic: str | None = None) -> AsyncDeadLetters:
        """Return the dead letters of the group, to list, redrive or discard them.

        Args:
            topic: The only topic. Default: all topics that the group reads.
        """
        _check_topic(topic)
        return AsyncDeadLetters(self._calls, self.name, topic)

    def __repr__(self) -> str:
        return f"AsyncGroup({self.name!r}, url={self._calls.place!r})"


def _check_topic(topic: str | None) -> None:
    if topic is not None:
        check_name("topic", topic)
