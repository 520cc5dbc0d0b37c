"""Shows a plan: a line for each change, in the way of a diff, or JSON. It decides nothing."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec

from lakelog.cli.output import clean
from lakelog.cli.topic_files.planning import Action, Change, SettingChange
from lakelog.model.display import show_count, show_duration, show_size
from lakelog.model.retries import RetryPolicy

_SIGNS = {Action.CREATE: "+", Action.CHANGE: "~", Action.DELETE: "-"}


def line_of(change: Change) -> str:
    """Return the line of a change: `+ topic orders (16 partitions)`, `~ topic refunds: retention.max_age 7d -> 30d`."""
    line = f"{_SIGNS[change.action]} {change.kind} {change.name}"
    begins = [f"reads {topic} from {_shown('start_from', start)}" for topic, start in change.begins.items()]
    if change.action is Action.CREATE:
        parts = [*begins, *map(_new, change.settings)]
        return clean(f"{line} ({', '.join(parts)})" if parts else line)
    parts = [*begins, *map(_changed, change.settings)]
    return clean(f"{line}: {', '.join(parts)}" if parts else line)


def _new(setting: SettingChange) -> str:
    if setting.name == "partitions":
        return show_count(int(str(setting.after)), "partition")
    if setting.name == "schema":
        return "with a schema"
    if setting.name == "columns":
        return "with columns"
    return f"{setting.name} {_shown(setting.name, setting.after)}"


def _changed(setting: SettingChange) -> str:
    if setting.name == "schema":
        verb = "added" if setting.before is None else "removed" if setting.after is None else "changed"
        return f"schema {verb}"
    if setting.name == "columns":
        return f"columns {'added' if setting.before is None else 'changed'}"
    return f"{setting.name} {_shown(setting.name, setting.before)} -> {_shown(setting.name, setting.after)}"


def _shown(name: str, value: Any) -> str:
    if value is None or value == "":
        return "all" if name.endswith("filter") and value == "" else "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, timedelta):
        return show_duration(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, RetryPolicy):
        return _policy(value)
    if isinstance(value, tuple):
        return f"[{', '.join(value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {text}' for key, text in value.items())}}}"
    if name.endswith("max_bytes"):
        return show_size(value)
    return f"'{value}'" if name.endswith("filter") else f"{value:,}" if isinstance(value, int) else str(value)


def _policy(policy: RetryPolicy) -> str:
    base = show_duration(timedelta(milliseconds=policy.base_ms))
    if policy.strategy == "fixed":
        return f"{policy.max} every {base}"
    return f"{policy.max} from {base} to {show_duration(timedelta(milliseconds=policy.max_ms))}"


def described(change: Change) -> dict[str, object]:
    """Return a change for JSON."""
    return {
        "action": change.action,
        "kind": change.kind,
        "name": change.name,
        "settings": {
            each.name: {"before": _plain(each.before), "after": _plain(each.after)} for each in change.settings
        },
        "begins": {topic: _plain(start) for topic, start in change.begins.items()},
    }


def _plain(value: object) -> object:
    """Return a value in the form that a file has for it."""
    return show_duration(value) if isinstance(value, timedelta) else msgspec.to_builtins(value)


def summary(plan: list[Change], dry_run: bool) -> str:
    """Return how many topics and groups the plan creates, changes and deletes."""
    if not plan:
        return "nothing to change"
    verbs = {Action.CREATE: "create", Action.CHANGE: "change", Action.DELETE: "delete"}
    counts = {action: sum(change.action is action for change in plan) for action in verbs}
    if dry_run:
        return ", ".join(f"{count} to {verbs[action]}" for action, count in counts.items() if count) + " (dry run)"
    return ", ".join(f"{count} {verbs[action]}d" for action, count in counts.items() if count)
