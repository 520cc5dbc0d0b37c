"""Feature levels: what servers of one installation may write, so that all of them can read it.

The installation has a level, and each version of Lakelog supports the levels up to its own. A server uses a form of a
journal event, a staged batch or an announcement only if the level of the installation has it, and forwards calls only
to servers that support the same levels. `lakelog migrate --raise-level` raises the level when all live servers support
the next one. From then on, older versions are refused.

To add a form, add a level here, and compare the installation's level with it where the form is written.
"""

from __future__ import annotations

from enum import IntEnum

from lakelog.errors import Conflict


class FeatureLevel(IntEnum):
    """The levels, and what each adds to the one before."""

    FIRST = 1
    SECOND = 2
    """Every journal row has a nonce, so that a failover confuses no two rows. Versions without nonces are refused. All
    servers announce changes of topics, so that the others cache topics for longer.
    """
    THIRD = 3
    """A group has settings for single topics, and accepts one run per value. Older servers would deliver with the
    settings of the group, and count repeats as discarded.
    """
    FOURTH = 4
    """Messages can be delayed, a topic can have a schema, columns, masks and an Iceberg table, and a token can have a
    parent. Older servers would not publish delayed messages when they are due, would store values without validating
    them, would remove the columns and the masks of a topic that they alter, would let files of a table be swept, and
    would accept a child token whose parent is revoked.
    """


SUPPORTED = max(FeatureLevel)
"""The level of this version."""


def unsupported(level: int) -> str:
    """Return the message for an installation whose level this version does not support."""
    return (
        f"The installation has feature level {level}, and this version of Lakelog supports levels up to {SUPPORTED}. "
        "Install the version that the other servers run, or a newer one."
    )


def check_level(level: int, needed: FeatureLevel, features: str) -> None:
    """Raise `Conflict` if the installation's level is too low for the features, a noun phrase in the plural."""
    if level < needed:
        raise Conflict(
            f"{features} need feature level {needed:d}, and this installation has level {level}. When all servers run "
            "this version, run `lakelog migrate --raise-level`."
        )
