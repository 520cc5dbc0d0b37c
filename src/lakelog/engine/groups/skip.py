"""Skip: moves a group past messages of one partition without delivering them.

Use it for messages that cannot be delivered because the file of their segment is damaged or missing. A seek also passes
these messages, but revokes leases and forgets retries.
"""

from __future__ import annotations

from lakelog.coordinator.leasing.applying import cut_below
from lakelog.coordinator.leasing.operations import Accepted, SkipTo
from lakelog.coordinator.leasing.state import DeliveryState
from lakelog.engine.groups.progress import ProgressReader, next_offsets
from lakelog.engine.log.topics import no_partition
from lakelog.errors import GroupKindDiffers, NoPosition, OffsetOutOfRange
from lakelog.model.group import Group, GroupKind, GroupTopic
from lakelog.model.seek import Skipped
from lakelog.model.topic import Topic


class Skipper:
    """One skip of a group in a topic."""

    def __init__(self, progress: ProgressReader, group: Group, topic: Topic) -> None:
        self._progress = progress
        self._journals = progress.journals
        self._group = group
        self._topic = topic

    async def skip(self, group_topic: GroupTopic | None, partition: int, offset: int, *, dry_run: bool) -> Skipped:
        """Cut the messages below the offset that are not leased; in a dry run, only count them."""
        group, topic = self._group, self._topic
        if group.kind is GroupKind.CURSOR:
            raise GroupKindDiffers(
                f"Group '{group.name}' is a cursor group, which keeps only positions; move it with "
                f"`lakelog groups seek {group.name} {topic.name} --partition {partition} --to {offset}`.",
                group=group.name,
                kind=group.kind,
            )
        if not 0 <= partition < topic.partitions:
            raise no_partition(topic, partition)
        if group_topic is None:
            raise NoPosition(
                f"Group '{group.name}' has no position in topic '{topic.name}', so there is nothing to skip.",
                group=group.name,
                topic=topic.name,
            )
        states, heads = await self._progress.states(group, topic, group_topic)
        state, end = states[partition], heads[partition].next_offset if partition in heads else 0
        messages = _below(state, offset)
        self._check(partition, offset, state, end)
        found = await self._progress.damage.find(topic, {partition: next_offsets(state, end)})
        if not dry_run:
            # Decided against the newest state, which may be newer than the one that was just read.
            done = await self._journals.run(
                group, group_topic, topic, partition, SkipTo(offset=offset, epoch=state.epoch)
            )
            assert isinstance(done, Accepted)
            messages = done.cut
        leased = sum(each < offset for lease in state.leases.values() for each in lease.open)
        return Skipped(
            dry_run=dry_run,
            partition=partition,
            offset=offset,
            messages=messages,
            leased=leased,
            unreadable=(found[partition].first, found[partition].end - 1) if partition in found else None,
        )

    def _check(self, partition: int, offset: int, state: DeliveryState, high_watermark: int) -> None:
        """Raise an error for an offset that is probably a mistake.

        A repeated skip has nothing left to skip; it raises no error.
        """
        place = f"topic '{self._topic.name}', partition {partition}"
        if offset > high_watermark:
            detail = f"Offset {offset} is above the end of {place}: skip to {high_watermark} at most."
        elif offset < state.frontier and not _below(state, offset):
            detail = (
                f"Group '{self._group.name}' has nothing to skip below offset {offset} of {place}: it continues at "
                f"{state.frontier}. Skip to an offset from {state.frontier} to {high_watermark}, or move the group "
                f"back with `lakelog groups seek`."
            )
        else:
            return
        raise OffsetOutOfRange(detail, offset=offset, frontier=state.frontier, high_watermark=high_watermark)


def _below(state: DeliveryState, offset: int) -> int:
    """Return how many messages below the offset are neither finished nor leased."""
    return len(cut_below(state, offset)) + max(0, offset - state.frontier)
