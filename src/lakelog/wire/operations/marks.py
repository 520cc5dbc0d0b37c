"""The operations about marks on the timeline of topics and groups."""

from __future__ import annotations

from lakelog.model import mark as model
from lakelog.wire.operations.operation import SEE, manage, read

_MARKS = "/v1/marks"

# Not audited: a mark is an audit record itself.
CREATE_MARK = manage(
    "create_mark",
    _MARKS,
    "Mark the present time, such as that of a deploy",
    model.CreateMarkRequest,
    model.Mark,
    status=201,
    is_repeatable=False,
    example={"text": "deploy 1.4"},
    problems=(),
)
LIST_MARKS = read(
    "list_marks",
    _MARKS,
    "List marks and changes of topics and groups, the newest first",
    model.MarkQuery,
    model.MarkPage,
    rights=SEE,
    problems=(),
)
