"""The choices of a group that have names. Apart from the rest, because the command line needs them to show its help."""

from __future__ import annotations

from enum import StrEnum


class GroupKind(StrEnum):
    """Fixed when the group is created."""

    LEASE = "lease"
    """Per-message leases, acks and retries."""
    CURSOR = "cursor"
    """Positions are committed; one owner per partition."""


class Order(StrEnum):
    """Which messages of a group are handled one after another.

    Attributes:
        KEY: Messages with the same key.
        PARTITION: All messages of a partition.
        NONE: None.
    """

    KEY = "key"
    PARTITION = "partition"
    NONE = "none"


class Assignor(StrEnum):
    """How partitions are shared out among members."""

    RANGE = "range"
    ROUND_ROBIN = "round-robin"
    STICKY = "sticky"
    COOPERATIVE = "cooperative-sticky"
