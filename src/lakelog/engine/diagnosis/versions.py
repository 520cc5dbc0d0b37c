"""The checks of versions: PostgreSQL, the schema of Lakelog, and the feature level."""

from __future__ import annotations

from lakelog.engine.diagnosis.steps import failed, ok, shell, skipped, text, warning
from lakelog.model.diagnosis import DatabaseFacts, Expectations, Finding
from lakelog.model.levels import unsupported

OLDEST_POSTGRESQL = 15


def check_postgresql(facts: DatabaseFacts, expected: Expectations) -> Finding:
    """Fail if PostgreSQL is too old."""
    if facts.version // 10_000 >= OLDEST_POSTGRESQL:
        return ok("postgresql", facts.version_text)
    measured = f"{facts.version_text}; Lakelog needs {OLDEST_POSTGRESQL} or later"
    return failed("postgresql", measured, text(f"Upgrade PostgreSQL to {OLDEST_POSTGRESQL} or later."))


def check_schema(facts: DatabaseFacts, expected: Expectations) -> Finding:
    """Fail if the schema is missing or older than this version; warn if it is newer."""
    if facts.schema is None or facts.schema.migration < expected.migration:
        found = "missing" if facts.schema is None else f"at migration {facts.schema.migration}"
        measured = f"{found}; this version needs migration {expected.migration}"
        return failed("schema", measured, shell(f"lakelog migrate{expected.options}"))
    if facts.schema.migration > expected.migration:
        return warning(
            "schema",
            f"at migration {facts.schema.migration}, and this version of Lakelog knows {expected.migration}",
            text("Upgrade Lakelog on this machine."),
        )
    return ok("schema", f"at migration {facts.schema.migration}")


def check_level(facts: DatabaseFacts, expected: Expectations) -> Finding:
    """Warn if the feature level can be raised, or which servers prevent it; fail if it is too high."""
    if facts.schema is None:
        return skipped("feature level", "the schema is missing")
    level = facts.schema.level
    if level > expected.level:
        return failed("feature level", f"{level}", text(unsupported(level)))
    if level == expected.level:
        return ok("feature level", f"{level}")
    older = ", ".join(f"{address} (level {each})" for address, each in facts.schema.older_servers.items())
    steps = [] if not older else [text("Upgrade or stop the older servers, and wait a minute.")]
    measured = f"{level}; this version supports {expected.level}"
    if older:
        measured += f", and these servers do not: {older}"
    return warning("feature level", measured, *steps, shell(f"lakelog migrate --raise-level{expected.options}"))
