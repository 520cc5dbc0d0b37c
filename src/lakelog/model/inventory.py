"""The names of the topics and groups of an environment."""

from __future__ import annotations

from lakelog.model.structs import Request, Value


class InventoryRequest(Request, frozen=True, kw_only=True):
    """A request for the names of all topics and groups."""


class Inventory(Value, frozen=True, kw_only=True):
    """The names of all topics and groups of an environment.

    Attributes:
        topics: The names of the topics, sorted.
        groups: The names of the groups, sorted.
        partitions: How many partitions the topics have together.
    """

    topics: tuple[str, ...]
    groups: tuple[str, ...]
    partitions: int
