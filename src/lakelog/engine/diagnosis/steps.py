"""The steps of remedies, and the findings without any."""

from __future__ import annotations

from lakelog.model.diagnosis import DatabaseFacts, Finding, FindingStatus, RemedyKind, RemedyStep

RESTART = RemedyStep(kind=RemedyKind.TEXT, text="Restart PostgreSQL.")
RELOAD = RemedyStep(kind=RemedyKind.SQL, text="SELECT pg_reload_conf();")


def sql(text: str) -> RemedyStep:
    """Return a step that runs a statement."""
    return RemedyStep(kind=RemedyKind.SQL, text=text)


def shell(text: str) -> RemedyStep:
    """Return a step that runs a command."""
    return RemedyStep(kind=RemedyKind.SHELL, text=text)


def text(text: str) -> RemedyStep:
    """Return a step for a person."""
    return RemedyStep(kind=RemedyKind.TEXT, text=text)


def ok(check: str, measured: str) -> Finding:
    """Return a finding without a problem."""
    return Finding(check=check, status=FindingStatus.OK, measured=measured)


def skipped(check: str, reason: str, *remedy: RemedyStep) -> Finding:
    """Return a finding for a check that was not possible."""
    return Finding(check=check, status=FindingStatus.SKIPPED, measured=reason, remedy=remedy)


def warning(check: str, measured: str, *remedy: RemedyStep) -> Finding:
    """Return a finding that should be cleared."""
    return Finding(check=check, status=FindingStatus.WARNING, measured=measured, remedy=remedy)


def failed(check: str, measured: str, *remedy: RemedyStep) -> Finding:
    """Return a finding that must be cleared."""
    return Finding(check=check, status=FindingStatus.FAILED, measured=measured, remedy=remedy)


def set_to(facts: DatabaseFacts, name: str, value: str, *, needs_restart: bool = False) -> list[RemedyStep]:
    """Return the steps that change a setting of PostgreSQL where it is set."""
    source = facts.settings[name].source
    if source == "database":
        return [sql(f"ALTER DATABASE {quoted(facts.database)} RESET {name};"), *_changed(facts, name, value)]
    if source in ("user", "database user"):
        within = f" IN DATABASE {quoted(facts.database)}" if source == "database user" else ""
        return [sql(f"ALTER ROLE {quoted(facts.user)}{within} RESET {name};"), *_changed(facts, name, value)]
    if source == "command line":
        return [text(f"Start PostgreSQL with {name}={value} on its command line.")]
    return _changed(facts, name, value, needs_restart=needs_restart)


def _changed(facts: DatabaseFacts, name: str, value: str, *, needs_restart: bool = False) -> list[RemedyStep]:
    return [sql(f"ALTER SYSTEM SET {name} = {value};"), RESTART if needs_restart else RELOAD]


def quoted(name: str) -> str:
    """Return an identifier for a statement."""
    return '"' + name.replace('"', '""') + '"'


def literal(value: str) -> str:
    """Return a text for a statement."""
    return "'" + value.replace("'", "''") + "'"
