"""The named queries. Each .sql file has blocks of a `-- name: purpose` line and a statement."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import LiteralString, cast

_HEADER = re.compile(r"^-- ([a-z_]+): (.+)$", re.MULTILINE)


def load(name: str) -> dict[str, LiteralString]:
    """Return the statements of one file by name."""
    text = files(__package__).joinpath(f"{name}.sql").read_text()
    parts = _HEADER.split(text)[1:]
    # Files of this package are trusted like literals in it.
    return {parts[at]: cast(LiteralString, parts[at + 2].strip().rstrip(";")) for at in range(0, len(parts), 3)}
