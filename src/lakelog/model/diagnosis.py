"""Findings about an installation, and the measured values that they are made of. `engine.diagnosis` has the checks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum

from lakelog.model.structs import Value


class FindingStatus(StrEnum):
    """The result of a check, from best to worst after SKIPPED."""

    SKIPPED = "skipped"
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


class RemedyKind(StrEnum):
    """The kinds of steps in a remedy."""

    SQL = "sql"
    """A statement to run in the database, as a superuser."""
    SHELL = "shell"
    """A command to run in a shell."""
    TEXT = "text"
    """An instruction for a person."""


class RemedyStep(Value, frozen=True, kw_only=True):
    """One step of a remedy.

    Attributes:
        kind: How to use the text.
        text: A statement, a command or an instruction.
    """

    kind: RemedyKind
    text: str


class Finding(Value, frozen=True, kw_only=True):
    """The result of one check.

    Attributes:
        check: The name of the check.
        status: The result.
        measured: The measured values, as a phrase.
        remedy: The steps that clear the finding, in order. Empty if nothing is wrong.
        where: The part that was checked, such as `catalog`, `cell eu` or `object store`.
    """

    check: str
    status: FindingStatus
    measured: str
    remedy: tuple[RemedyStep, ...] = ()
    where: str = ""


def worst(findings: Iterable[Finding]) -> FindingStatus:
    """Return the worst status of the findings; OK if none of them is a problem."""
    order = [*FindingStatus]
    return max((each.status for each in findings), key=order.index, default=FindingStatus.OK)


class Setting(Value, frozen=True, kw_only=True):
    """A setting of PostgreSQL.

    Attributes:
        value: The value that new sessions of this user get in this database.
        source: The place where the value is set: `configuration file`, `command line`, `database`, `user`, …
        is_pending: Whether another value is configured and waits for a restart.
    """

    value: str
    source: str
    is_pending: bool = False


class OpenTransaction(Value, frozen=True, kw_only=True):
    """A transaction that is open now.

    Attributes:
        pid: The process id of its session.
        user: The user of the session.
        application: The name that the program gave to the session; may be empty.
        address: The address of the program; empty for a local socket.
        state: The state of the session, such as `idle in transaction`.
        seconds: The age of the transaction.
    """

    pid: int
    user: str
    application: str
    address: str
    state: str
    seconds: float


class PreparedTransaction(Value, frozen=True, kw_only=True):
    """A prepared transaction, which holds its snapshot until it is committed or rolled back."""

    name: str
    seconds: float


class ReplicationSlot(Value, frozen=True, kw_only=True):
    """A replication slot, and the WAL in bytes that it holds."""

    name: str
    is_active: bool
    holds_rows: bool
    held_bytes: int
    status: str


class Standby(Value, frozen=True, kw_only=True):
    """A standby that is connected now."""

    name: str
    state: str
    sync_state: str
    lag_bytes: int


class SchemaFacts(Value, frozen=True, kw_only=True):
    """The schema of Lakelog in a database.

    Attributes:
        migration: The newest applied migration.
        installation: The id of the installation.
        cell: The number of the cell.
        level: The feature level of the installation.
        cells: The numbers of all cells except the default one, by name; empty in a cell.
        older_servers: The addresses of live servers that support only lower levels than this version, and their levels.
    """

    migration: int
    installation: str
    cell: int
    level: int
    cells: Mapping[str, int]
    older_servers: Mapping[str, int]


class DatabaseFacts(Value, frozen=True, kw_only=True):
    """The measured values of one database.

    Attributes:
        database: The name of the database.
        user: The user of this connection.
        version: The version number of PostgreSQL, such as 150004.
        version_text: The same as a text, such as 15.4.
        clock: The time of the database.
        clock_before: The time of this machine before the clock was read.
        clock_after: The time of this machine afterwards.
        settings: The settings of PostgreSQL, by name.
        connections: Connections of all users to the whole cluster.
        sees_all_sessions: Whether the user may see the transactions of other users.
        transactions: The oldest open transactions of this database that hold a snapshot.
        prepared: The oldest prepared transactions of this database.
        slots: The replication slots of the cluster.
        standbys: The standbys that are connected now.
        xid_age: The age of the oldest transaction id in the cluster.
        xid_database: The database with the oldest transaction id.
        has_outbox: Whether the database has an outbox.
        outbox: The oldest open transactions that have published into the outbox.
        schema: The schema of Lakelog; None if it is missing.
        client_options: The options with which PostgreSQL's own commands reach the database.
    """

    database: str
    user: str
    version: int
    version_text: str
    clock: datetime
    clock_before: datetime
    clock_after: datetime
    settings: Mapping[str, Setting]
    connections: int
    sees_all_sessions: bool
    transactions: tuple[OpenTransaction, ...]
    prepared: tuple[PreparedTransaction, ...]
    slots: tuple[ReplicationSlot, ...]
    standbys: tuple[Standby, ...]
    xid_age: int
    xid_database: str
    has_outbox: bool
    outbox: tuple[OpenTransaction, ...]
    schema: SchemaFacts | None
    client_options: str

    def number(self, name: str) -> int:
        """Return a setting that is a whole number.

        Args:
            name: The name of the setting.
        """
        return int(self.settings[name].value)


class Expectations(Value, frozen=True, kw_only=True):
    """The needs of this version and of its configuration, with which measured values are compared.

    Attributes:
        lock_slots: Lock slots that PostgreSQL needs.
        connections: Connections of one server to each database.
        transaction_seconds: The age from which an open transaction is reported.
        migration: The newest migration of this version.
        level: The feature level of this version.
        options: The options that name the databases in the commands of remedies; begins with a space if not empty.
    """

    lock_slots: int
    connections: int
    transaction_seconds: float
    migration: int
    level: int
    options: str
