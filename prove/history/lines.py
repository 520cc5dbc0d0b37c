"""The lines of a history's file, and the numbers in them. It writes and judges nothing.

One JSON-lines file per client process, which takes a new id after each crash. An `invoke` line stands before the call,
`ok`, `fail` or `info` after it; a `note` needs no answer; `end` is written by an orderly close. A line speaks for one
call: where that is about many messages, it carries an array for each column, which is what makes recording cheap.
Topics, groups, owners and processes are texts; keys, values and identities are numbers (`text_id`).
"""

from __future__ import annotations

from typing import Literal, get_args

from msgspec import Struct

from prove.history.tables import text_id

Kind = Literal["invoke", "ok", "fail", "info", "note", "end"]
Told = Literal["ok", "fail", "info"]
"""What a caller may be told."""
Said = Literal["ack", "nack", "release", "fail", "discard", "extend"]
"""What an owner says about a lease."""
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
]


def value_hash(value: bytes) -> int:
    """The content of a message as a number."""
    return text_id(value)


def identity_of(idempotency_key: str | None = None, producer: str | None = None, sequence: int | None = None) -> int:
    """What makes a second attempt the same message, within a topic; 0 where nothing does."""
    if idempotency_key is not None:
        return text_id(f"key {idempotency_key}")
    if producer is not None and sequence is not None:
        return text_id(f"sequence {producer} {sequence}")
    return 0


class Seen(Struct, frozen=True, array_like=True):
    """One message as a reader got it."""

    offset: int
    hash: int
    key: int = 0
    identity: int = 0


class Got(Struct, frozen=True, array_like=True):
    """One message of a lease: its offset, the number of this delivery, and how often it has failed.

    `hash` and `key` where the owner has looked at the message, else 0.
    """

    offset: int
    delivery: int = 1
    failures: int = 0
    hash: int = 0
    key: int = 0


class LeaseSeen(Struct, frozen=True, array_like=True):
    """One lease as a consume returned it; the expiry is on the database's clock."""

    partition: int
    token: int
    expires_ms: int
    suspect: bool
    messages: tuple[Got, ...]


class ProgressSeen(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """How far the group was in one partition, as it was told."""

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
    """One line of a file. `line` counts them from 0, so that a missing one shows; the recorder stamps it.

    A publish of n messages takes n counters from `counter` on. Its outcome may be several lines, in order, where
    messages of one call fared differently: each then begins at its own `counter`, speaks for `count` messages, and
    names the call by `batch`.
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
    # Messages, an item for each; an empty array stands for nothing but zeros.
    offsets: tuple[int, ...] = ()
    hashes: tuple[int, ...] = ()
    keys: tuple[int, ...] = ()
    identities: tuple[int, ...] = ()
    partitions: tuple[int, ...] = ()
    """Asked for by a publish (-1: not), answered to it, or assigned to a member."""
    # Publishes.
    batch: int | None = None
    count: int | None = None
    producer: str | None = None
    sequences: tuple[int, ...] = ()
    duplicates: tuple[int, ...] = ()
    """Which offsets were the first attempt's: 1 for each."""
    # Reads.
    reader: ReadBy = "fetch"
    log_start: int | None = None
    high_watermark: int | None = None
    # Leases, and members, whose name stands in `owner`.
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
