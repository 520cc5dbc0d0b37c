"""The partitions that a program has assigned to its consumer, for the next seek or rewind."""

from __future__ import annotations

from lakelog.client.consumer.options import ConsumerTopic
from lakelog.errors import InvalidRequest, NotAssigned
from lakelog.model.arguments import check_whole
from lakelog.model.limits import MAX_PARTITIONS


class ManualAssignment:
    """The assigned partitions of one consumer."""

    def __init__(self, topics: tuple[ConsumerTopic, ...]) -> None:
        self._topics = [each.name for each in topics]
        self._places: dict[tuple[str, int], None] = {}

    @property
    def places(self) -> list[tuple[str, int]]:
        """The assigned partitions."""
        return list(self._places)

    def add(self, topic: str, partition: int) -> None:
        """Assign a partition of a topic that the consumer reads."""
        if topic not in self._topics:
            raise InvalidRequest(f"This consumer does not read topic '{topic}', so it cannot be assigned.", topic=topic)
        self._places[topic, check_whole("partition", partition, 0, MAX_PARTITIONS - 1)] = None

    def remove(self, topic: str, partition: int) -> None:
        """Remove a partition. Raise `NotAssigned` if it is not assigned."""
        if (topic, partition) not in self._places:
            raise NotAssigned(
                f"Partition {partition} of topic '{topic}' is not assigned to this consumer.",
                topic=topic,
                partition=partition,
            )
        del self._places[topic, partition]

    def rewound(self) -> list[tuple[str, int]]:
        """Return the partitions that a rewind moves: the assigned ones, else partition 0 of each topic."""
        return self.places or [(topic, 0) for topic in self._topics]
