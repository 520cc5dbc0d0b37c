"""The audit log: who changed what, one line per change, and one per call that a token was not allowed to make.

Handlers note what a call changed with `Call.note`. Messages and secrets never get here.
"""

from __future__ import annotations

import logging

import msgspec
from msgspec import NODEFAULT, UNSET

from lakelog.reporting import log_event
from lakelog.server.auth import Grant
from lakelog.server.calls import Call

CHANGES = {
    "create_topic": "created topic {topic}",
    "alter_topic": "altered topic {topic}",
    "delete_topic": "deleted topic {topic}",
    "purge_topic": "purged topic {topic}",
    "alter_group": "altered group {group}",
    "delete_group": "deleted group {group}",
    "seek": "moved group {group} in topic {topic}",
    "skip": "skipped messages of topic {topic} for group {group}",
    "pause_group": "paused group {group}",
    "resume_group": "resumed group {group}",
    "pause_topic": "paused all groups of topic {topic}",
    "resume_topic": "resumed all groups of topic {topic}",
    "redrive": "redrove dead letters of group {group}",
    "discard_dead_letters": "discarded dead letters of group {group}",
    "retry_dead_letter": "redrove dead letter {message_id} of group {group}",
    "delete_dead_letter": "discarded dead letter {message_id} of group {group}",
    "register_segments": "registered segments of topic {topic}",
    "verified_segments": "marked segments of topic {topic} as verified",
    "unregister_segments": "unregistered segments of topic {topic}",
    "swept": "removed unused files of the object store",
    "begin_run": "began a run of pipeline {pipeline}",
    "end_run": "ended run {run_id} of a pipeline",
}
"""By operation. Operations that need the right `manage` and are not named here change nothing that lasts."""

_MAX_TEXT = 200
_log = logging.getLogger("lakelog.audit")


def record_change(operation: str, call: Call, grant: Grant, status: int) -> None:
    """Log what the call changed; a dry run changed nothing."""
    changes = call.changes or {}
    if "dry_run" in changes:
        return
    what = CHANGES[operation].format(**call.parameters)
    shown = f" ({', '.join(f'{name}={text}' for name, text in changes.items())})" if changes else ""
    _record(operation, call, grant, status, f"{_actor(grant)} {what}{shown}.")


def record_refusal(operation: str, call: Call, grant: Grant, needed: str) -> None:
    """Log that the token lacks the right."""
    objects = "".join(f", {name} {text}" for name, text in call.parameters.items())
    _record(operation, call, grant, 403, f"{_actor(grant)} lacks the right {needed} ({operation}{objects}).")


def given(shape: msgspec.Struct, *left_out: str) -> dict[str, str]:
    """Return the fields of a body that differ from their defaults, as short texts."""
    found = {}
    for field in msgspec.structs.fields(shape):
        value = getattr(shape, field.name)
        default = field.default if field.default_factory is NODEFAULT else field.default_factory()
        if value is not UNSET and value != default and field.name not in left_out:
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            found[field.name] = text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…"
    return found


def _actor(grant: Grant) -> str:
    return f"Token {grant.name} ({grant.token})" if grant.name else "A caller without a token"


def _record(operation: str, call: Call, grant: Grant, status: int, message: str) -> None:
    log_event(
        _log,
        logging.INFO,
        operation,
        message,
        token=grant.token,
        token_name=grant.name,
        project=grant.scope.project,
        environment=grant.scope.environment,
        **call.parameters,
        **({"changes": call.changes} if call.changes else {}),
        status=status,
        request_id=call.request_id.decode(),
    )
