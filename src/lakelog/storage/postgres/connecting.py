"""Opens connections to PostgreSQL, and translates the errors of failed attempts and lost connections.

A refusal (wrong password, unknown database, TLS) is a `ConfigurationError`: a retry cannot help. Every other failure is
`Unavailable`. Both name the database, never the password.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
from collections.abc import Mapping

import asyncpg

from lakelog.errors import ConfigurationError, LakelogError, Unavailable, first_line
from lakelog.storage.postgres.address import DatabaseAddress, invalid_url

CONNECT_SECONDS = 10.0

LOST = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    # Raised by a connection that was just terminated, before it closes.
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
    asyncpg.OperatorInterventionError,
)
"""Errors that end a connection."""

_ADVICE: dict[type[BaseException], str] = {
    asyncpg.InvalidPasswordError: "Check the user and the password in the database URL.",
    asyncpg.InvalidAuthorizationSpecificationError: "Check the user in the database URL, and pg_hba.conf.",
    asyncpg.InvalidCatalogNameError: "Create the database, or correct the database URL.",
    asyncpg.InsufficientPrivilegeError: "Grant the user CONNECT on the database.",
    asyncpg.ClientConfigurationError: "Check the database URL.",
    ssl.SSLCertVerificationError: "Check sslmode and sslrootcert in the database URL, and the server's certificate.",
}
_TLS_REJECTED = "rejected SSL upgrade"
_TLS_ADVICE = "Turn on TLS in PostgreSQL (ssl = on), or change sslmode in the database URL."


async def connect(
    url: str, address: DatabaseAddress, server_settings: Mapping[str, str], command_timeout: float | None = None
) -> asyncpg.Connection:
    """Open a connection, or raise the translated error."""
    try:
        return await asyncpg.connect(
            url, server_settings=dict(server_settings), command_timeout=command_timeout, timeout=CONNECT_SECONDS
        )
    except (*LOST, asyncpg.PostgresError) as error:
        raise translated(address, error) from error
    except ValueError:
        raise invalid_url() from None


def translated(address: DatabaseAddress, error: BaseException) -> LakelogError:
    """Return the error for a connection that could not be opened."""
    if refusal := refusal_of(address, error):
        return ConfigurationError(f"PostgreSQL at {address}: {refusal}", database=str(address))
    return Unavailable(
        f"PostgreSQL at {address} cannot be reached: {reason_of(error)}.", unreachable="database", database=str(address)
    )


def reason_of(error: BaseException) -> str:
    """Return a short reason, the same for failures of the same kind."""
    if isinstance(error, asyncpg.ConnectionDoesNotExistError | ConnectionResetError | BrokenPipeError):
        return "connection lost"
    if isinstance(error, asyncpg.PostgresError):
        return error.message or type(error).__name__
    if isinstance(error, socket.gaierror):
        return f"the host name cannot be resolved ({error.strerror})"
    if isinstance(error, TimeoutError):
        return "no response"
    if isinstance(error, OSError):
        return _reason_of_os(error)
    if isinstance(error, asyncpg.ClientConfigurationError):
        return first_line(error).rstrip(".")
    # Errors of the driver about a connection that ended while it was in use.
    return "connection lost"


def _reason_of_os(error: OSError) -> str:
    text = str(error)
    if _TLS_REJECTED in text:
        return "the server does not support TLS"
    # A host with several addresses raises one error for all of them, without an error number.
    if isinstance(error, ConnectionRefusedError) or f"[Errno {errno.ECONNREFUSED}]" in text:
        return "connection refused"
    if error.errno and not isinstance(error, ssl.SSLError):
        return os.strerror(error.errno).lower()
    return text.rstrip(".") or "connection lost"


def refusal_of(address: DatabaseAddress, error: BaseException) -> str | None:
    """Return why the user is refused and how to fix it; None if the failure is not a refusal."""
    advice = next((advice for kind, advice in _ADVICE.items() if isinstance(error, kind)), None)
    if isinstance(error, OSError) and _TLS_REJECTED in str(error):
        advice = _TLS_ADVICE
    return advice and f"connection of user {address.user} refused: {reason_of(error)}. {advice}"
