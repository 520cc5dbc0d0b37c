"""The operations about audit records."""

from __future__ import annotations

from lakelog.model import audit as model
from lakelog.wire.operations.operation import MANAGE, read

LIST_AUDIT = read(
    "list_audit",
    "/v1/audit",
    "List audit records, the newest first",
    model.AuditQuery,
    model.AuditPage,
    rights=MANAGE,
    problems=(),
)
