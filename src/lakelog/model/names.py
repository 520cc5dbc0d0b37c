"""The rules for names of projects, environments, topics and groups."""

from __future__ import annotations

import re

from lakelog.errors import InvalidName

_NAME = re.compile(r"[a-z0-9._-]{1,120}", re.ASCII)


def check_name(kind: str, name: str) -> str:
    """Return the name if it is valid."""
    if not isinstance(name, str):
        raise InvalidName(f"The name of a {kind} must be a text, not {name!r}.", name=repr(name))
    if not _NAME.fullmatch(name) or name in {".", ".."}:
        shown = name if len(name) <= 120 else name[:117] + "..."
        raise InvalidName(
            f"{kind.capitalize()} name {shown!r} is not valid: use 1 to 120 of a-z, 0-9, dot, underscore and hyphen.",
            name=shown,
        )
    return name
