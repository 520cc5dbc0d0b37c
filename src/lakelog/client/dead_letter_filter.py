"""Builds the filter text of dead letters from arguments. `lakelog.model.filter` defines the grammar."""

from __future__ import annotations

from lakelog.model.arguments import check_text


def where_of(present: str | None, text: str | None, error: str | None, key: str | None) -> str | None:
    """Return one filter that combines all conditions; None if there is none."""
    for name, given in (("text", text), ("error", error), ("key", key)):
        if given is not None:
            check_text(name, given)
    parts = [f"({part})" for part in (present, text) if part]
    if error is not None:
        parts.append(f"error like {_quoted(f'%{error}%')}")
    if key is not None:
        parts.append(f"key = {_quoted(key)}")
    if len(parts) == 1 and (only := present or text):
        return only
    return " and ".join(parts) or None


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
