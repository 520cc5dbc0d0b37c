"""Backups of PostgreSQL: marks that keep the files which a backup refers to."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupMark:
    """A mark that was made before a backup of PostgreSQL began.

    Attributes:
        name: The name of the mark.
        at: When it was made. Files that were in use at this time are not swept.
        until: When it ends.
    """

    name: str
    at: datetime
    until: datetime
