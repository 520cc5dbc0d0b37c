"""The seeded bugs: each has a patch, the invariant that must find it, and the PostgreSQL settings that it needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

PATCHES = Path(__file__).parent / "patches"


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One bug. `found_by` is the invariant that must find it; other invariants may find it as well."""

    name: str
    says: str
    found_by: str
    postgres: Mapping[str, str] = field(default_factory=dict)
    """The settings of the PostgreSQL clusters in which the bug runs."""

    @property
    def patch(self) -> Path:
        return PATCHES / f"{self.name}.patch"


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        name="synchronous-commit-off",
        says="PostgreSQL responds before its log is on disk, and the startup check against that is disabled",
        found_by="S1",
        # The log is written only every ten seconds, so a kill at any moment shows the bug.
        postgres={"synchronous_commit": "off", "wal_writer_delay": "10s", "wal_writer_flush_after": "1GB"},
    ),
    Mutant(
        name="offsets-from-a-sequence",
        says="offsets are taken in one transaction, messages are written in the next, and readers take what they find",
        found_by="S6",
    ),
    Mutant(
        name="ack-without-the-token",
        says="an answer applies to the current lease, whatever token it names",
        found_by="S9",
    ),
    Mutant(
        name="expiry-by-the-servers-clock",
        says="a server decides by its own clock whether a lease has expired",
        found_by="S8",
    ),
    Mutant(
        name="idempotency-in-memory",
        says="each server process knows only the idempotency keys that it saw itself",
        found_by="S4",
    ),
    Mutant(
        name="dead-letter-in-a-second-transaction",
        says="a group's progress is written first, and its dead letters half a second later",
        found_by="S14",
    ),
    Mutant(
        name="hot-delete-before-the-cold-commit",
        says="hot tables are dropped when segments are registered, before the files are verified",
        found_by="S20",
    ),
    Mutant(
        name="highest-ack-committed",
        says="the committed offset follows the highest acked message, even if lower ones are open",
        found_by="S16",
    ),
    Mutant(
        name="attempts-counted-on-failure",
        says="deliveries are counted when a message fails, and not when it is leased",
        found_by="S12",
    ),
    Mutant(
        name="files-deleted-on-a-commit-error",
        says="files are deleted when their commit returns an error, although the commit may have succeeded",
        found_by="S21",
    ),
    Mutant(
        name="retention-without-counting",
        says="messages that retention cuts from a group are not counted",
        found_by="S23",
    ),
    Mutant(
        name="assignment-without-a-fence",
        says="members commit in partitions that they lost generations ago",
        found_by="S17",
    ),
)
