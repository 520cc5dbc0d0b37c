"""The operations about rejected messages, and about messages by their id."""

from __future__ import annotations

from lakelog.model import outbox
from lakelog.model.message_story import MessageStory, StoryQuery
from lakelog.wire.operations.operation import PUBLISH, SEE, Audit, manage, read
from lakelog.wire.redaction import Redaction, hide_rejected, hide_story
from lakelog.wire.rejected_shapes import PAGE

_REJECTED = "/v1/rejected"

LIST_REJECTED = read(
    "list_rejected",
    _REJECTED,
    "List messages that were refused after they were published",
    outbox.RejectedQuery,
    outbox.RejectedPage,
    form=PAGE,
    rights=SEE,
    redaction=Redaction(hide=hide_rejected),
    problems=(),
)
RETRY_REJECTED = manage(
    "retry_rejected",
    f"{_REJECTED}/retry",
    "Publish rejected messages again",
    outbox.RejectedChange,
    outbox.RejectedChanged,
    requires_body=True,
    example={"topic": "orders"},
    audit=Audit(text="published rejected messages again", hidden=("message_ids",), result="changed"),
    problems=(),
)
DISCARD_REJECTED = manage(
    "discard_rejected",
    f"{_REJECTED}/discard",
    "Discard rejected messages",
    outbox.RejectedChange,
    outbox.RejectedChanged,
    requires_body=True,
    example={"topic": "orders"},
    audit=Audit(text="discarded rejected messages", hidden=("message_ids",), result="changed"),
    problems=(),
)
# A publisher finds out what became of its message, and its token may have no other right.
FIND_MESSAGE = read(
    "find_message",
    "/v1/messages/{message_id}",
    "Find the position of a message by its id",
    outbox.MessageQuery,
    outbox.MessageStatus,
    rights=PUBLISH | SEE,
    problems=(),
)
MESSAGE_STORY = read(
    "message_story",
    "/v1/messages/{message_id}/story",
    "Tell what happened to a message in each group",
    StoryQuery,
    MessageStory,
    rights=SEE,
    redaction=Redaction(hide=hide_story),
)
