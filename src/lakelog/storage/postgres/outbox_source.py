"""An outbox in an application's database on PostgreSQL: its installation, and how a relay reads it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import datetime
from importlib.resources import files

import asyncpg
import msgspec

from lakelog.errors import ConfigurationError
from lakelog.storage.outbox import OutboxPage, OutboxRow, OutboxSettings, Snapshot
from lakelog.storage.postgres.address import address_of
from lakelog.storage.postgres.connection import Database
from lakelog.storage.postgres.migrate import connect_to_migrate
from lakelog.storage.postgres.queries import load

_SQL = load("outbox_source")
_VERSION = 1
_SLOTS = 3
_OLDEST_SERVER = (13, 0)
_PAGE_ROWS = 10_000
_PAGE_BYTES = 16 << 20
_TEXTS = msgspec.json.Decoder(dict[str, object])


async def install_outbox(
    url: str, *, project: str | None = None, environment: str | None = None, grant_to: str | None = None
) -> OutboxSettings:
    """Create the outbox in a database, or update it, and return its settings.

    Args:
        url: The application's database. Its user becomes the owner of the outbox; the relay needs the same rights.
        project: The project of the topics. Default: as before, and `default` for a new outbox.
        environment: The environment of the topics. Default: as before, and `default` for a new outbox.
        grant_to: A role that may publish. The owner may do so in any case.
    """
    address = address_of(url)
    connection = await connect_to_migrate(url)
    try:
        if connection.get_server_version() < _OLDEST_SERVER:
            raise ConfigurationError(f"PostgreSQL at {address} is too old. An outbox needs version 13 or newer.")
        async with connection.transaction():
            # Two installations at the same time would both find no schema.
            await connection.execute("select pg_advisory_xact_lock(5497628094138482688)")
            await connection.execute(files(__package__).joinpath("outbox_schema.sql").read_text())
            (written,) = await connection.fetch(
                _SQL["settings_write"], secrets.randbelow(2**48) + 1, project, environment, _VERSION
            )
            if grant_to is not None:
                role = await connection.fetchval("select quote_ident($1)", grant_to)
                await connection.execute(f"grant usage on schema lakelog_outbox to {role}")
                for kind in ("bytea", "jsonb", "text"):
                    await connection.execute(await _grant(connection, kind, role))
                await connection.execute(f"grant execute on function lakelog_outbox.publish_messages(text) to {role}")
    except asyncpg.PostgresError as error:
        raise ConfigurationError(f"The outbox could not be installed at {address}: {error}.") from error
    finally:
        await connection.close()
    return OutboxSettings(**written)


async def _grant(connection: asyncpg.Connection, kind: str, role: str) -> str:
    signature = await connection.fetchval(
        "select p.oid::regprocedure::text from pg_proc p where p.pronamespace = 'lakelog_outbox'::regnamespace "
        "and p.proname = 'publish' and p.proargtypes[1] = $1::text::regtype",
        kind,
    )
    return f"grant execute on function {signature} to {role}"


class PostgresOutbox:
    """Implements `lakelog.storage.outbox.OutboxSource`. It connects when it is first used."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.address = str(address_of(url))
        self._database: Database | None = None

    async def open(self) -> OutboxSettings | None:
        if not (await self._opened().read(_SQL["outbox_is_installed"]))[0][0]:
            return None
        rows = await self._opened().read(_SQL["settings_read"])
        if not rows:
            return None
        (row,) = rows
        if row["version"] > _VERSION:
            raise ConfigurationError(
                f"The outbox in PostgreSQL at {self.address} belongs to a newer version of Lakelog. Update this one."
            )
        return OutboxSettings(outbox_id=row["outbox_id"], project=row["project"], environment=row["environment"])

    async def read(self, seen: Snapshot, after: tuple[int, int] = (0, 0)) -> OutboxPage:
        arguments = (seen.end, sorted(seen.running), *after, _PAGE_ROWS, _PAGE_BYTES)
        rows = await self._opened().read(_SQL["messages_read"], *arguments)
        return OutboxPage(
            rows=[_row_of(row) for row in rows if row["number"] is not None],
            snapshot=_snapshot_of(rows[0]["snapshot"]),
            is_last=rows[0]["is_last"],
            started_at=rows[0]["started_at"],
        )

    async def rotate(self) -> bool:
        return bool((await self._opened().read(_SQL["slot_rotate"]))[0][0])

    async def empty(self, moved: Snapshot) -> int:
        emptied = 0
        for slot in range(_SLOTS):
            rows = await self._opened().read(_SQL["slot_empty"], slot, moved.end, sorted(moved.running))
            emptied += rows[0][0]
        return emptied

    async def oldest(self) -> datetime | None:
        found: datetime | None = (await self._opened().read(_SQL["oldest_read"]))[0][0]
        return found

    async def close(self) -> None:
        if self._database is not None:
            await self._database.close()
            self._database = None

    def _opened(self) -> Database:
        if self._database is None:
            self._database = Database(self._url, 1)
        return self._database


def _snapshot_of(text: str) -> Snapshot:
    """Return the snapshot that PostgreSQL shows as `xmin:xmax:xip,xip`."""
    _, end, running = text.split(":")
    return Snapshot(int(end), frozenset(int(each) for each in running.split(",") if each))


def _row_of(row: asyncpg.Record) -> OutboxRow:
    headers = row["headers"]
    return OutboxRow(
        number=row["number"],
        salt=row["salt"],
        transaction=row["transaction"],
        topic=row["topic"],
        created_at=row["created_at"],
        key=row["key"],
        value=row["value"],
        headers=None if headers is None else _headers_of(headers),
        content_type=row["content_type"],
        correlation_id=row["correlation_id"],
        idempotency_key=row["idempotency_key"],
        partition=row["partition"],
        expires_ms=row["expires_ms"],
        expires_at=row["expires_at"],
        deliver_at=row["deliver_at"],
    )


def _headers_of(document: str) -> Mapping[str, str]:
    """Return the headers of a message. One that is no text is found when the message is checked."""
    try:
        return _TEXTS.decode(document)  # type: ignore[return-value]
    except (msgspec.DecodeError, RecursionError):
        # JSON with a number of thousands of digits, or nested too deeply: no text either. The relay must read on.
        return {"headers": None}  # type: ignore[dict-item]
