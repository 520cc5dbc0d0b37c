"""The cells of an engine, by number."""

from __future__ import annotations

from lakelog.errors import Unavailable
from lakelog.model.group import Group
from lakelog.model.topic import Topic
from lakelog.storage.store import PartitionStore


class Cells(dict[int, PartitionStore]):
    """The stores of all cells that are configured here.

    While the configuration is rolled out, other servers may already use a cell that this one does not have.
    """

    def __missing__(self, cell: int) -> PartitionStore:
        raise self._not_here(f"Cell {cell} is")

    def check_topic(self, topic: Topic) -> None:
        """Raise `Unavailable` if a partition of the topic is in a cell that is not configured here."""
        if not self.keys() >= set(topic.cells):
            raise self._not_here(f"A cell of topic '{topic.name}' is")

    def check_group(self, group: Group) -> None:
        """Raise `Unavailable` if the home cell of the group is not configured here."""
        if group.cell not in self:
            raise self._not_here(f"The cell of group '{group.name}' is")

    @staticmethod
    def _not_here(subject: str) -> Unavailable:
        return Unavailable(
            f"{subject} not here yet: this server does not have it in its configuration. Retry with another server, or "
            "add the cell to LAKELOG_CELLS and restart this one."
        )
