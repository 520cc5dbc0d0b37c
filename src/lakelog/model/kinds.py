"""The enumerations of groups, tokens, dead letters and schemas. The command line needs them for its help."""

from __future__ import annotations

from enum import StrEnum


class GroupKind(StrEnum):
    """Kind of a group, fixed when the group is created."""

    LEASE = "lease"
    """A group with leases, acks and retries per message."""
    CURSOR = "cursor"
    """A group that commits positions, with one member per partition."""


class Order(StrEnum):
    """The messages of a group that are handled one after another.

    Attributes:
        KEY: Messages with the same key.
        PARTITION: All messages of a partition.
        NONE: No messages; all may be handled at the same time.
    """

    KEY = "key"
    PARTITION = "partition"
    NONE = "none"


class Assignor(StrEnum):
    """The policy that distributes partitions among members.

    Attributes:
        RANGE: Consecutive partitions of each topic.
        ROUND_ROBIN: Partitions in turns.
        STICKY: Even, with as few moves as possible; all members stop while partitions move.
        COOPERATIVE: Like sticky, but members keep reading partitions that do not move.
    """

    RANGE = "range"
    ROUND_ROBIN = "round-robin"
    STICKY = "sticky"
    COOPERATIVE = "cooperative-sticky"


class DeadLetterState(StrEnum):
    """The state of a dead letter.

    Attributes:
        DEAD: The message waits for a decision.
        REDRIVEN: The message was published again. This state is final.
        DISCARDED: The message was given up. This state is final.
    """

    DEAD = "dead"
    REDRIVEN = "redriven"
    DISCARDED = "discarded"


class Compatibility(StrEnum):
    """The rule for a change of a topic's schema. A change is compared with the previous version only.

    Attributes:
        NONE: Every change is accepted.
        BACKWARD: The new schema accepts the values of the old one, so that new readers can read old messages.
        FORWARD: The old schema accepts the values of the new one, so that old readers can read new messages.
        FULL: Both.
    """

    NONE = "none"
    BACKWARD = "backward"
    FORWARD = "forward"
    FULL = "full"


class Right(StrEnum):
    """A right of a token. No right implies another.

    Attributes:
        READ: Read and consume messages, and see everything about them.
        PUBLISH: Publish messages.
        MANAGE: Change topics, groups and dead letters.
        INSPECT: See topics, groups and dead letters without keys, values, headers and errors of messages.
        METRICS: Read the metrics of the environment's groups and topics.
    """

    READ = "read"
    PUBLISH = "publish"
    MANAGE = "manage"
    INSPECT = "inspect"
    METRICS = "metrics"


class AuditOutcome(StrEnum):
    """The outcome of an audited call.

    Attributes:
        DONE: The change was made.
        BEGUN: The change was begun, and its end is not recorded: it runs, or its process died.
        FAILED: The call ended with an error, and may have made a part of the change.
        REFUSED: The caller lacked a right. Nothing was changed.
    """

    DONE = "done"
    BEGUN = "begun"
    FAILED = "failed"
    REFUSED = "refused"


class ActorKind(StrEnum):
    """The kind of caller of an audited call.

    Attributes:
        TOKEN: A caller with a token.
        ANONYMOUS: A caller of a server without authentication.
        DATABASE: A user of the database: an embedded client, or a command that works in the database.
    """

    TOKEN = "token"
    ANONYMOUS = "anonymous"
    DATABASE = "database"
