"""Dead letters by cause: those whose failures have the same fingerprint are one cluster."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Annotated

from msgspec import Meta

from lakelog.model.dead_letters import ClusterId, DeadLetter
from lakelog.model.fingerprint import Fingerprint, fingerprint_of
from lakelog.model.structs import Name, Request, Value

MAX_CLUSTERS = 1000


class ClusterQuery(Request, frozen=True, kw_only=True):
    """A request for the clusters of the dead letters of a group."""

    group: Name
    topic: Annotated[Name, Meta(description="Only dead letters of this topic.")] | None = None
    fingerprint: Annotated[ClusterId, Meta(description="Only this cluster.")] | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_CLUSTERS, description="The largest number of clusters to return.")] = 100


class DeadLetterCluster(Value, frozen=True, kw_only=True):
    """Dead letters whose failures have the same fingerprint.

    Attributes:
        fingerprint: 12 characters that stay the same for the same cause, also in other groups; empty for dead letters
            that an older version stored.
        kind: The type of the error, such as `ValueError`; an empty text if the reason names none.
        pattern: The reason with `<n>`, `<id>`, `<text>`, `<url>`, `<host>`, `<email>` and `<uuid>` in place of what
            differs.
        frame: The innermost frame of the application, such as `shop/billing.py in charge`; None if no worker sent a
            traceback.
        count: How many dead letters are in the cluster.
        first_at: When the first of them died.
        last_at: When the last of them died.
        topics: Their topics.
        example: The id of the message that died last.
        error: The reason of that message.
    """

    fingerprint: str
    kind: str
    pattern: str
    frame: str | None
    count: int
    first_at: datetime
    last_at: datetime
    topics: tuple[str, ...]
    example: str
    error: str


class DeadLetterClusters(Value, frozen=True, kw_only=True):
    """The dead letters of a group by cause.

    Attributes:
        clusters: The clusters, the largest first.
        examined: How many dead letters were counted.
        has_more: True if there are further clusters, or further dead letters that were not counted.
    """

    clusters: tuple[DeadLetterCluster, ...]
    examined: int
    has_more: bool


def cluster_dead_letters(letters: Iterable[DeadLetter]) -> tuple[DeadLetterCluster, ...]:
    """Return the clusters of dead letters, the largest first; of equal size, the one with the newest letter first."""
    found: dict[Fingerprint, list[DeadLetter]] = {}
    for letter in letters:
        found.setdefault(fingerprint_of(letter.error, letter.traceback), []).append(letter)
    clusters = [_cluster(fingerprint, members) for fingerprint, members in found.items()]
    return tuple(sorted(clusters, key=lambda cluster: (cluster.count, cluster.last_at), reverse=True))


def _cluster(fingerprint: Fingerprint, letters: Sequence[DeadLetter]) -> DeadLetterCluster:
    last = max(letters, key=lambda letter: (letter.at, letter.topic, letter.partition, letter.offset))
    return DeadLetterCluster(
        fingerprint=str(fingerprint),
        kind=fingerprint.kind,
        pattern=fingerprint.pattern,
        frame=fingerprint.frame,
        count=len(letters),
        first_at=min(letter.at for letter in letters),
        last_at=last.at,
        topics=tuple(sorted({letter.topic for letter in letters})),
        example=last.id,
        error=last.error,
    )
