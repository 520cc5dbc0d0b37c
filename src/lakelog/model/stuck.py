"""Why a group is stuck: a code, since when, the evidence, and what to do.

`lakelog.engine.groups.stuck` finds it; `groups describe`, HTTP, the client and metrics show it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

from lakelog.model.structs import Value


class StuckCode(StrEnum):
    """The cause, the most important first.

    Attributes:
        PAUSED: The group, or the topic for the group, is paused.
        UNRESPONSIVE_CELL: The database with the partition does not respond.
        DAMAGED_SEGMENT: The file with the next message is damaged or missing.
        NO_POSITION: The group has no position in the topic.
        CRASH_LOOP: A message lost its owner again and again, without an answer.
        NO_MEMBER: Messages can be delivered, but no consumer reads the topic.
        HUNG_HANDLER: An owner keeps a lease for minutes, and answers nothing.
        SLOW_OWNER: An owner has held messages for longer than others wait.
        WINDOW_FULL: As many messages are leased or wait for a retry as the window allows.
        HOT_KEY: Most unfinished messages have one key, whose messages are delivered one after another.
        KEY_BLOCKED: Messages wait behind a failed message with the same key, or in partition order.
        RETRY_WAVE: All messages that could be delivered wait for a retry.
        SUSPECTS_ALONE: Messages that lost their owner wait for an owner that holds nothing else.
        REBALANCING: A member is about to get the partition.
        CAPACITY: Consumers exist and are busy, or are between two calls.
        RETENTION_CUT: Retention removed messages before the group read them.
        FILTER_PASSES_NOTHING: The filter has left out every message so far.
        NOTHING_WRONG: No message waits.
    """

    PAUSED = "paused"
    UNRESPONSIVE_CELL = "unresponsive_cell"
    DAMAGED_SEGMENT = "damaged_segment"
    NO_POSITION = "no_position"
    CRASH_LOOP = "crash_loop"
    NO_MEMBER = "no_member"
    HUNG_HANDLER = "hung_handler"
    SLOW_OWNER = "slow_owner"
    WINDOW_FULL = "window_full"
    HOT_KEY = "hot_key"
    KEY_BLOCKED = "key_blocked"
    RETRY_WAVE = "retry_wave"
    SUSPECTS_ALONE = "suspects_alone"
    REBALANCING = "rebalancing"
    CAPACITY = "capacity"
    RETENTION_CUT = "retention_cut"
    FILTER_PASSES_NOTHING = "filter_passes_nothing"
    NOTHING_WRONG = "nothing_wrong"


class RemedyCall(Value, frozen=True, kw_only=True):
    """A call of the API.

    Attributes:
        method: The HTTP method.
        path: The path.
        body: The fields of the JSON body.
    """

    method: str
    path: str
    body: Mapping[str, str | int | float | bool | None]


class Remedy(Value, frozen=True, kw_only=True):
    """Something that makes the group move.

    Attributes:
        label: The instruction.
        cli: The command that does it; None if it lies outside Lakelog, such as a worker to start.
        http: The call that does it; None like `cli`.
    """

    label: str
    cli: str | None = None
    http: RemedyCall | None = None


class Stuck(Value, frozen=True, kw_only=True):
    """Why messages of a group wait, in one partition or in several.

    Attributes:
        code: The cause.
        text: The cause as a sentence, with the command that helps most.
        since: When the cause began; where that is not recorded, when the oldest waiting message was published. None if
            neither is known.
        evidence: The values from which the code follows, by name.
        remedies: The instructions that make the group move, the best first. Empty if waiting is enough.
        topic: The topic; None if it is all of them.
        partitions: The partitions of the topic.
    """

    code: StuckCode
    text: str
    since: datetime | None = None
    evidence: Mapping[str, str | int | None] = {}
    remedies: tuple[Remedy, ...] = ()
    topic: str | None = None
    partitions: tuple[int, ...] = ()
