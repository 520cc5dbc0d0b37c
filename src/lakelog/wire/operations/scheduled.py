"""The operations about delayed messages that wait."""

from __future__ import annotations

from lakelog.model import scheduled as model
from lakelog.wire.operations.operation import MANAGE, PUBLISH, SEE, Audit, manage, read
from lakelog.wire.redaction import Redaction, hide_scheduled
from lakelog.wire.scheduled_shapes import PAGE

_SCHEDULED = "/v1/topics/{topic}/scheduled"

LIST_SCHEDULED = read(
    "list_scheduled",
    _SCHEDULED,
    "List a topic's delayed messages that wait, the earliest first",
    model.ScheduledQuery,
    model.ScheduledPage,
    form=PAGE,
    rights=SEE,
    redaction=Redaction(hide=hide_scheduled),
)
# A publisher can take back what it scheduled: the id is in its receipt.
CANCEL_SCHEDULED = manage(
    "cancel_scheduled",
    f"{_SCHEDULED}/{{message_id}}",
    "Cancel a delayed message",
    model.CancelRequest,
    model.CancelledMessage,
    method="DELETE",
    rights=PUBLISH | MANAGE,
    audit=Audit(text="cancelled delayed message {message_id} of topic {topic}", in_cells=True),
    problems=(404,),
)
