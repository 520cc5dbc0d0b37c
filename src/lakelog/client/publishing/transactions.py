"""Publishes in the caller's own database transaction, through the connection that the caller gives.

This is the only module that knows the database libraries of callers. It imports none of them: a caller who has a
connection has imported its library. Errors of the library are raised unchanged: the transaction is the caller's.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from lakelog.errors import InvalidRequest
from lakelog.model.message import Message

MAX_DOCUMENT_BYTES = 4 << 20
"""The size of the messages of one statement at most, before their encoding."""
_CALL = "select lakelog_outbox.publish_messages({})"
_KINDS = "a psycopg connection, an asyncpg connection, a SQLAlchemy session or connection, or django.db.connection"
_ASYNC = "This client is asynchronous. Give an asynchronous connection, or use `lakelog.connect`."
_SYNC = "This client is synchronous. Give a synchronous connection, or use `lakelog.connect_async`."


def document_of(topic: str, messages: Sequence[Message]) -> str:
    """Return the messages as the argument of `lakelog_outbox.publish_messages`."""
    return msgspec.json.encode([_fields_of(topic, message) for message in messages]).decode()


def _fields_of(topic: str, message: Message) -> dict[str, object]:
    texts = [message.content_type, message.correlation_id, message.idempotency_key]
    texts += [text for pair in (message.headers or {}).items() for text in pair]
    if any("\0" in text for text in texts if text is not None):
        raise InvalidRequest("PostgreSQL cannot store the character 0 in a text. Remove it, or send it in the value.")
    fields: dict[str, object] = {
        "topic": topic,
        "key": _base64(message.key),
        "value": _base64(message.value),
        "headers": dict(message.headers) if message.headers else None,
        "content_type": message.content_type,
        "correlation_id": message.correlation_id,
        "idempotency_key": message.idempotency_key,
        "partition": message.partition,
        "expires_ms": message.expires_ms,
        "expires_at": message.expires_at,
        "delay_ms": message.schedule.delay_ms if message.schedule else None,
        "deliver_at": message.schedule.deliver_at if message.schedule else None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def publish_in(transaction: object, document: str) -> list[str]:
    """Write messages to the outbox in the transaction of a synchronous connection, and return their ids."""
    connection: Any = transaction
    match _library_of(transaction):
        case "psycopg":
            connection = _psycopg_connection(connection, is_async=False)
            with connection.cursor(row_factory=sys.modules["psycopg.rows"].tuple_row) as cursor:
                return [row[0] for row in cursor.execute(_CALL.format("%s"), (document,)).fetchall()]
        case "sqlalchemy":
            if _is_async(connection):
                raise InvalidRequest(_SYNC)
            return list(connection.execute(*_sqlalchemy_call(document)).scalars().all())
        case "django":
            _check_django(connection)
            with connection.cursor() as cursor:
                cursor.execute(_CALL.format("%s"), [document])
                return [row[0] for row in cursor.fetchall()]
        case "asyncpg":
            raise InvalidRequest(_SYNC)
    raise _unknown(transaction)


async def async_publish_in(transaction: object, document: str) -> list[str]:
    """Write messages to the outbox in the transaction of an asynchronous connection, and return their ids."""
    connection: Any = transaction
    match _library_of(transaction):
        case "psycopg":
            connection = _psycopg_connection(connection, is_async=True)
            async with connection.cursor(row_factory=sys.modules["psycopg.rows"].tuple_row) as cursor:
                await cursor.execute(_CALL.format("%s"), (document,))
                return [row[0] for row in await cursor.fetchall()]
        case "asyncpg":
            if not connection.is_in_transaction():
                raise _no_transaction("`async with connection.transaction():`")
            return [row[0] for row in await connection.fetch(_CALL.format("$1"), document)]
        case "sqlalchemy":
            if not _is_async(connection):
                raise InvalidRequest(_ASYNC)
            return list((await connection.execute(*_sqlalchemy_call(document))).scalars().all())
        case "django":
            raise InvalidRequest(_ASYNC)
    raise _unknown(transaction)


def _library_of(connection: object) -> str | None:
    """Return the library of a connection, by the modules of its class and base classes."""
    libraries = {kind.__module__.partition(".")[0] for kind in type(connection).__mro__}
    known = libraries & {"psycopg", "asyncpg", "sqlalchemy", "django"}
    return known.pop() if len(known) == 1 else None


def _psycopg_connection(given: Any, *, is_async: bool) -> Any:
    """Return the connection of a connection or cursor, if a transaction is open or begins by itself."""
    connection = getattr(given, "connection", given)
    if not hasattr(connection, "cursor") or not hasattr(connection, "autocommit"):
        raise _unknown(given)
    if any(kind.__name__ == "AsyncConnection" for kind in type(connection).__mro__) != is_async:
        raise InvalidRequest(_ASYNC if is_async else _SYNC)
    if connection.autocommit and connection.info.transaction_status == 0:
        raise _no_transaction("`with connection.transaction():`")
    return connection


def _is_async(connection: object) -> bool:
    if not hasattr(connection, "execute"):
        raise _unknown(connection)
    return any(kind.__module__.startswith("sqlalchemy.ext.asyncio") for kind in type(connection).__mro__)


def _sqlalchemy_call(document: str) -> tuple[Any, dict[str, str]]:
    return sys.modules["sqlalchemy"].text(_CALL.format(":messages")), {"messages": document}


def _check_django(connection: Any) -> None:
    if getattr(connection, "vendor", None) != "postgresql":
        raise InvalidRequest("`transaction` must be Django's connection to a PostgreSQL database.")
    if connection.get_autocommit() and not connection.in_atomic_block:
        raise _no_transaction("`with transaction.atomic():`")


def _no_transaction(how: str) -> InvalidRequest:
    return InvalidRequest(
        f"The connection has no open transaction, so the message would be published at once. Begin one with {how}, "
        "or publish without `transaction`."
    )


def _unknown(value: object) -> InvalidRequest:
    kind = type(value)
    return InvalidRequest(f"`transaction` must be {_KINDS}, not {kind.__module__}.{kind.__qualname__}.")
