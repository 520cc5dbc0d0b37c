"""The audit log: one line per change with the token that made it, and one per call that lacked a right.

The text of a change is in the table of operations; handlers add details with `Call.note`. Messages and secrets
are never logged.
"""

from __future__ import annotations

import logging
from typing import Any

from lakelog.reporting import log_event
from lakelog.server.auth import Grant
from lakelog.server.calls import Call
from lakelog.wire.operations.operation import Operation

_log = logging.getLogger("lakelog.audit")


def record_change(operation: Operation[Any, Any], call: Call, grant: Grant, status: int) -> None:
    """Log what the call changed, unless it was a dry run."""
    if operation.audit is None:
        return
    changes = call.changes or {}
    if "dry_run" in changes or operation.audit.only_with not in (None, *changes):
        return
    what = operation.audit.text.format(**call.parameters)
    shown = f" ({', '.join(f'{name}={text}' for name, text in changes.items())})" if changes else ""
    _record(operation.name, call, grant, status, f"{_actor(grant)} {what}{shown}.")


def record_created_group(call: Call, grant: Grant, name: str) -> None:
    """Log that a consume or a join created a group."""
    _record("create_group", call, grant, 200, f"{_actor(grant)} created group {name}.", group=name)


def record_refusal(operation: str, call: Call, grant: Grant, needed: str) -> None:
    """Log that the token lacks the right."""
    objects = "".join(f", {name} {text}" for name, text in call.parameters.items())
    _record(operation, call, grant, 403, f"{_actor(grant)} lacks the right {needed} ({operation}{objects}).")


def _actor(grant: Grant) -> str:
    return f"Token {grant.name} ({grant.token})" if grant.name else "A caller without a token"


def _record(operation: str, call: Call, grant: Grant, status: int, message: str, **fields: str) -> None:
    log_event(
        _log,
        logging.INFO,
        operation,
        message,
        token=grant.token,
        token_name=grant.name,
        project=grant.scope.project,
        environment=grant.scope.environment,
        **{**call.parameters, **fields},
        **({"changes": call.changes} if call.changes else {}),
        status=status,
        request_id=call.request_id.decode(),
    )
