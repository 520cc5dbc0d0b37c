"""The lines of a history file, and the numbers in them. The module writes and judges nothing.

Each client process writes one JSON-lines file, and takes a new id after each crash. An `invoke` line precedes the call,
and `ok`, `fail` or `info` follows it; a `note` needs no response; an orderly close writes `end`. A line describes one
call. For a call with many messages, a line has one array per column, which makes recording cheap. Topics, groups,
owners and processes are texts; keys, values and identities are numbers (`text_id`).
"""

from __future__ import annotations

from typing import Literal, get_args

from msgspec import Struct

from prove.history.tables import text_id

Kind = Literal["invoke", "ok", "fail", "info", "note", "end"]
Told = Literal["ok", "fail", "info"]
"""The outcomes of a call."""
Said = Literal["ack", "nack", "release", "fail", "discard", "extend"]
"""The verbs of an answer about a lease."""
Op = Literal[
    "publish", "read", "consume", "ack", "nack", "release", "fail", "discard", "extend", "seek", "progress",
    "join", "leave", "commit", "assigned", "revoked", "sample",
]  # fmt: skip
OPS: tuple[str, ...] = get_args(Op)
ReadBy = Literal["final", "fetch", "delivery", "replay", "spark", "cold"]
Sampled = Literal[
    "lag",
    "oldest_age_ms",
    "memory",
    "serving",
    "overload",
    "canary",
    "rebalances",
    "driver",
    "tiering",
    "repeat",
    "beside",
    "limited",
]


def value_hash(value: bytes) -> int:
    """Return the content of a message as a number."""
    return text_id(value)


def identity_of(idempotency_key: str | None = None, producer: str | None = None, sequence: int | None = None) -> int:
    """Return the number that identifies repeats of a message within a topic; 0 if the message has no identity."""
    if idempotency_key is not None:
        return text_id(f"key {idempotency_key}")
    if producer is not None and sequence is not None:
        return text_id(f"sequence {producer} {sequence}")
    return 0


class Seen(Struct, frozen=True, array_like=True):
    """One message as a reader received it."""

    offset: int
    hash: int
    key: int = 0
    identity: int = 0


class Got(Struct, frozen=True, array_like=True):
    """One message of a lease: its offset, the number of this delivery, and its number of failures.

    `hash` and `key` are set if the owner read the message, else 0.
    """

    offset: int
    delivery: int = 1
    failures: int = 0
    hash: int = 0
    key: int = 0


class LeaseSeen(Struct, frozen=True, array_like=True):
    """One lease as a consume returned it. The expiry is by the database clock."""

    partition: int
    token: int
    expires_ms: int
    suspect: bool
    messages: tuple[Got, ...]


class ProgressSeen(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The reported progress of a group in one partition."""

    partition: int
    epoch: int
    start: int
    committed: int
    frontier: int
    high_watermark: int
    leased: int = 0
    waiting: int = 0
    skipped: int = 0
    acked: int = 0
    dead: int = 0
    discarded: int = 0
    filtered: int = 0
    expired: int = 0
    cut: int = 0

    @property
    def finished(self) -> int:
        return self.acked + self.dead + self.discarded + self.filtered + self.expired + self.cut


class Line(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One line of a file. `line` counts from 0, so a missing line is detected; the recorder sets it.

    A publish of n messages takes n counters from `counter` on. If its messages have different outcomes, the outcome has
    several lines, in order: each begins at its own `counter`, describes `count` messages, and names the call by
    `batch`.
    """

    kind: Kind
    counter: int = 0
    line: int = -1
    process: str = ""
    time_ns: int = 0
    wall_ns: int = 0
    op: Op | Literal[""] = ""
    topic: str = ""
    partition: int | None = None
    offset: int | None = None
    reason: str = ""
    # Messages, one item each. An empty array means all zeros.
    offsets: tuple[int, ...] = ()
    hashes: tuple[int, ...] = ()
    keys: tuple[int, ...] = ()
    identities: tuple[int, ...] = ()
    partitions: tuple[int, ...] = ()
    """The partitions that a publish requested (-1: none) or got, or that were assigned to a member."""
    # Publishes.
    batch: int | None = None
    count: int | None = None
    producer: str | None = None
    sequences: tuple[int, ...] = ()
    duplicates: tuple[int, ...] = ()
    """A 1 for each offset that belongs to an earlier attempt."""
    # Reads.
    reader: ReadBy = "fetch"
    log_start: int | None = None
    high_watermark: int | None = None
    # Leases, and members, whose name is in `owner`.
    group: str = ""
    owner: str = ""
    generation: int | None = None
    token: int | None = None
    lease_ms: int | None = None
    delay_ms: int | None = None
    expires_ms: int | None = None
    dead: tuple[int, ...] = ()
    """Offsets that became dead letters by this answer."""
    leases: tuple[LeaseSeen, ...] = ()
    progress: tuple[ProgressSeen, ...] = ()
    final: bool = False
    epoch: int | None = None
    # Samples.
    sample: Sampled | None = None
    told: int = 0
    truth: int = 0
    stale: bool = False
