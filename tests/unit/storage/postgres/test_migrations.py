"""The numbers of the migrations."""

from __future__ import annotations

from lakelog.storage.postgres.migrate import migrations


def test_migrations_are_numbered_without_gaps_and_repeats() -> None:
    assert [version for version, _, _ in migrations()] == list(range(1, len(migrations()) + 1))
