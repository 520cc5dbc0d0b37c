"""Decides whether a topic has messages that no run has read, without an orchestrator."""

import json
from dataclasses import dataclass

import lakelog


@dataclass(frozen=True, kw_only=True)
class NewMessages:
    """Messages that a run has to read.

    Attributes:
        count: How many there are.
        start_offsets: The first offset by partition.
        end_offsets: The end offset by partition, not included.
    """

    count: int
    start_offsets: dict[int, int]
    end_offsets: dict[int, int]

    @property
    def cursor(self) -> str:
        """The cursor of the next look."""
        return json.dumps(self.end_offsets)

    @property
    def name(self) -> str:
        """A text that is the same for the same messages, so that they start one run."""
        return "-".join(f"{partition}.{end}" for partition, end in sorted(self.end_offsets.items()))


def look(log: lakelog.Lakelog, topic: str, cursor: str | None, *, least: int = 1) -> NewMessages | None:
    """Return the messages since the cursor; None if there are fewer than `least`.

    Args:
        log: The client.
        topic: The name of the topic.
        cursor: The cursor of the last messages that were found; None to begin at the oldest message.
        least: How many messages are worth a run.
    """
    read = {int(partition): offset for partition, offset in json.loads(cursor or "{}").items()}
    partitions = log.topic(topic).describe().partition_list
    # Retention may have removed messages that no run has read.
    starts = {each.partition: max(read.get(each.partition, 0), each.log_start) for each in partitions}
    ends = {each.partition: each.high_watermark for each in partitions}
    count = sum(end - starts[partition] for partition, end in ends.items())
    if count < least:
        return None
    return NewMessages(count=count, start_offsets=starts, end_offsets=ends)
