"""The operations about dead letters."""

from __future__ import annotations

from lakelog.model import dead_letters as model
from lakelog.model.dead_letter_clusters import ClusterQuery, DeadLetterClusters
from lakelog.wire.dead_letter_shapes import LETTER, PAGE
from lakelog.wire.operations.operation import SEE, Audit, Operation, manage, read
from lakelog.wire.redaction import Redaction, hide_clusters, hide_letter, hide_letters

_DEAD = "/v1/groups/{group}/dead-letters"
_ONE = f"{_DEAD}/{{message_id}}"

LIST_DEAD_LETTERS = read(
    "list_dead_letters",
    _DEAD,
    "List a group's dead letters",
    model.DeadLetterQuery,
    model.DeadLetterPage,
    form=PAGE,
    rights=SEE,
    redaction=Redaction(hide=hide_letters, refused=("where",)),
)
DEAD_LETTER_CLUSTERS = read(
    "dead_letter_clusters",
    "/v1/groups/{group}/dead-letter-clusters",
    "Count a group's dead letters by cause",
    ClusterQuery,
    DeadLetterClusters,
    rights=SEE,
    redaction=Redaction(hide=hide_clusters),
)
REDRIVE = manage(
    "redrive",
    f"{_DEAD}/redrive",
    "Publish dead letters again for their group",
    model.RedriveRequest,
    model.Redriven,
    requires_body=True,
    example={"topic": "orders", "where": "error like '%timeout%'", "dry_run": True},
    audit=Audit(
        text="redrove dead letters of group {group}",
        hidden=("message_ids", "repaired"),
        result="redriven",
        in_cells=True,
    ),
)
DISCARD_DEAD_LETTERS = manage(
    "discard_dead_letters",
    f"{_DEAD}/discard",
    "Give up dead letters",
    model.DiscardRequest,
    model.DiscardedDeadLetters,
    requires_body=True,
    example={"topic": "orders"},
    audit=Audit(
        text="discarded dead letters of group {group}", hidden=("message_ids",), result="discarded", in_cells=True
    ),
)
PURGE_DEAD_LETTERS = manage(
    "purge_dead_letters",
    f"{_DEAD}/purge",
    "Delete redriven and discarded dead letters that died some time ago",
    model.PurgeDeadLettersRequest,
    model.PurgedDeadLetters,
    example={"older_than_ms": 604_800_000},
    audit=Audit(text="purged finished dead letters of group {group}", result="purged", in_cells=True),
    problems=(404,),
)
DESCRIBE_DEAD_LETTER = read(
    "describe_dead_letter",
    _ONE,
    "A dead letter, with its message",
    model.DeadLetterRequest,
    model.DeadLetter,
    form=LETTER,
    rights=SEE,
    redaction=Redaction(hide=hide_letter),
)
RETRY_DEAD_LETTER = manage(
    "retry_dead_letter",
    f"{_ONE}/retry",
    "Publish one dead letter again for its group",
    model.RetryRequest,
    model.Redriven,
    example={"force": False},
    audit=Audit(text="redrove dead letter {message_id} of group {group}", hidden=("repaired",), in_cells=True),
)
DELETE_DEAD_LETTER: Operation[model.DeadLetterRequest, None] = manage(
    "delete_dead_letter",
    _ONE,
    "Give up one dead letter",
    model.DeadLetterRequest,
    None,
    method="DELETE",
    audit=Audit(text="discarded dead letter {message_id} of group {group}", in_cells=True),
)
