"""The seeded bugs: each a patch, the invariant that has to find it, and what has to be there for it to show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

PATCHES = Path(__file__).parent / "patches"


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One bug. `found_by` is the invariant of its line; others may find it, too."""

    name: str
    says: str
    found_by: str
    postgres: Mapping[str, str] = field(default_factory=dict)
    """Settings of the clusters under it."""

    @property
    def patch(self) -> Path:
        return PATCHES / f"{self.name}.patch"


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        name="synchronous-commit-off",
        says="PostgreSQL answers before its log is on disk, and the refusal to start so is switched off",
        found_by="S1",
        # Its log is written every ten seconds only, so that whichever moment it is killed at shows it.
        postgres={"synchronous_commit": "off", "wal_writer_delay": "10s", "wal_writer_flush_after": "1GB"},
    ),
    Mutant(
        name="offsets-from-a-sequence",
        says="offsets are taken in one transaction, the messages written in the next, and readers take what is there",
        found_by="S6",
    ),
    Mutant(name="ack-without-the-token", says="an answer is good for whoever has the message now", found_by="S9"),
    Mutant(
        name="expiry-by-the-servers-clock",
        says="a server decides by its own clock whether a lease is over",
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
        says="hot tables go when segments are registered, before anybody has read the files again",
        found_by="S20",
    ),
    Mutant(
        name="highest-ack-committed",
        says="the committed offset is behind the highest acked message, whatever is open below",
        found_by="S16",
    ),
    Mutant(
        name="attempts-counted-on-failure",
        says="deliveries are counted when a message fails, and not when it is leased",
        found_by="S12",
    ),
    Mutant(
        name="files-deleted-on-a-commit-error",
        says="files are deleted when an error answers the commit that makes them count, which may have happened",
        found_by="S21",
    ),
    Mutant(
        name="retention-without-counting",
        says="what retention cuts from a group is not counted",
        found_by="S23",
    ),
    Mutant(
        name="assignment-without-a-fence",
        says="members commit in partitions that they lost generations ago",
        found_by="S17",
    ),
)
