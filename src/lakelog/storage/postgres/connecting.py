"""Opens connections to PostgreSQL, and translates the errors of failed attempts and lost connections.

A session is a connection to a node that accepts writes. If the URL has several hosts, all of them are tried at once. A
refusal (wrong password, unknown database, TLS) is a `ConfigurationError`: a retry cannot help. Every other failure is
`Unavailable`. Both name the database, never the password.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import asyncpg

from lakelog.errors import ConfigurationError, LakelogError, Unavailable, first_line
from lakelog.storage.postgres.address import DatabaseAddress, invalid_url

CONNECT_SECONDS = 10.0
OTHER_HOSTS_SECONDS = 2.0
"""How long the other hosts of a URL may take to show a higher timeline than the host that responded first."""
ASK_AGAIN_SECONDS = 0.5
"""How often a standby is asked again while another host of the URL does not respond."""
_KEEPALIVE = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3}
"""The times in seconds and the number of probes after which a connection to a vanished peer is closed."""

_STARTUP = ("application_name", "timezone")
"""Settings in the first message of a connection. PgBouncer refuses most others there, so a statement sets them."""

_ROLE = """
select current_setting('transaction_read_only') = 'on' as is_read_only,
       case when pg_is_in_recovery() then 0
            else ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer end as timeline
"""
"""The timeline in `pg_control_checkpoint` is that of the last checkpoint, and too low after a promotion."""

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


class NotWritable(Exception):
    """The error for a node that accepts no writes, or whose timeline was replaced.

    Its text follows the name of the node.
    """


class Session(asyncpg.Connection):
    """A connection to a node that accepts writes."""

    __slots__ = ("is_unconfirmed", "timeline")

    timeline: int
    """The node's timeline, which is the same as long as the session lasts."""
    is_unconfirmed: bool
    """True if a wait for a synchronous standby was cancelled: the commit succeeded, but may be lost in a failover."""

    async def check(self, lowest: int = 0) -> None:
        """Read the role of the node. Raise `NotWritable` if it is read-only or its timeline is below `lowest`."""
        ((is_read_only, self.timeline),) = await self.fetch(_ROLE)
        if not self.timeline or is_read_only:
            raise NotWritable("is read-only" if self.timeline else "is a standby and read-only")
        if self.timeline < lowest:
            raise NotWritable(f"is on timeline {self.timeline}, which timeline {lowest} replaced")

    async def begin_timeline(self) -> None:
        """Record where all logs end, if this is the first session on a new timeline. A missing schema is ignored."""
        with contextlib.suppress(
            asyncpg.InvalidSchemaNameError, asyncpg.UndefinedFunctionError, asyncpg.InsufficientPrivilegeError
        ):
            await self.execute("select lakelog.timeline_begin()")

    def heard(self, _connection: object, message: asyncpg.PostgresLogMessage) -> None:
        """Check a message of the server for the warning about a cancelled wait.

        The warning about a cancelled wait for a standby is the only one with this code, and its text may be translated.
        """
        if message.sqlstate == "01000" and message.severity_en == "WARNING":
            self.is_unconfirmed = True


Attempt = Callable[[], Awaitable[Session]]
"""A function that opens a connection to one host."""


async def open_session(
    url: str,
    address: DatabaseAddress,
    server_settings: Mapping[str, str],
    *,
    lowest: int = 0,
    command_timeout: float | None = None,
) -> Session:
    """Open a connection to the node that accepts writes, or raise the translated error.

    Args:
        url: The URL. All of its hosts are tried at once.
        address: The address of the URL, for errors.
        server_settings: Settings of the session.
        lowest: The lowest timeline to accept. With 0, the hosts of the URL are compared, and the highest is taken.
        command_timeout: The longest time for a statement, in seconds; None for no limit.
    """
    options: dict[str, Any] = {
        "connection_class": Session,
        "server_settings": {name: server_settings[name] for name in _STARTUP if name in server_settings},
        "command_timeout": command_timeout,
        "timeout": CONNECT_SECONDS,
        # Checked in `check`, which names the reason.
        "target_session_attrs": "any",
    }
    hosts = address.each_host() if address.has_several_hosts else [{}]
    try:
        later = "; ".join(f"set {name} = '{text}'" for name, text in server_settings.items() if name not in _STARTUP)
        return await _first([partial(_open, url, {**options, **host}, lowest, later) for host in hosts], lowest)
    except (*LOST, asyncpg.PostgresError, NotWritable) as error:
        raise translated(address, error) from error
    except ValueError:
        raise invalid_url() from None


async def _open(url: str, options: Mapping[str, Any], lowest: int, then: str) -> Session:
    session: Session = await asyncpg.connect(url, **options)
    try:
        session.is_unconfirmed = False
        _keep_alive(session)
        await session.execute(then, timeout=CONNECT_SECONDS)
        async with asyncio.timeout(CONNECT_SECONDS):
            await session.check(lowest)
        if session.timeline > lowest:
            async with asyncio.timeout(3 * CONNECT_SECONDS):
                await session.begin_timeline()
        session.add_log_listener(session.heard)
    except BaseException:
        session.terminate()
        raise
    return session


async def _first(attempts: Sequence[Attempt], lowest: int) -> Session:
    """Return the first session, or with `lowest` 0 the one with the highest timeline; close the others.

    While a host does not respond, a standby is asked repeatedly, because it may be promoted at any time.
    """
    if len(attempts) == 1:
        return await attempts[0]()
    tasks = {asyncio.ensure_future(attempt()): attempt for attempt in attempts}
    pending, silent = set(tasks), set(tasks)
    best: Session | None = None
    chosen: Session | None = None
    failure: BaseException | None = None
    try:
        until: float | None = None
        while pending and (silent or best):
            left = None if until is None else until - asyncio.get_running_loop().time()
            done, pending = await asyncio.wait(pending, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                break
            silent -= done
            for task in done:
                if (error := task.exception()) is not None:
                    failure = _worse(failure, error)
                    if isinstance(error, NotWritable) and silent:
                        again = asyncio.ensure_future(_later(tasks[task]))
                        tasks[again] = tasks[task]
                        pending.add(again)
                elif best is None or task.result().timeline > best.timeline:
                    best = task.result()
            if best is not None:
                if lowest:
                    break
                until = until or asyncio.get_running_loop().time() + OTHER_HOSTS_SECONDS
        chosen = best
    finally:
        for task in tasks:
            task.add_done_callback(lambda ended: _terminate(ended, chosen))
            task.cancel()
    if chosen is None:
        assert failure is not None
        raise failure
    return chosen


async def _later(attempt: Attempt) -> Session:
    await asyncio.sleep(ASK_AGAIN_SECONDS)
    return await attempt()


def _worse(one: BaseException | None, other: BaseException) -> BaseException:
    """Return the failure to report.

    The error of a node that responded is more useful than that of an unreachable node.
    """
    return other if one is None or isinstance(one, OSError) else one


def _terminate(attempt: asyncio.Future[Session], chosen: Session | None) -> None:
    if not attempt.cancelled() and attempt.exception() is None and attempt.result() is not chosen:
        attempt.result().terminate()


def _keep_alive(session: Session) -> None:
    """Let the kernel detect that the peer is gone, even while nothing is sent."""
    transport: asyncio.Transport = session._transport  # type: ignore[attr-defined]
    connected: socket.socket = transport.get_extra_info("socket")
    if connected.family == socket.AF_UNIX:
        return
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        # Some systems lack some of them.
        if (option := getattr(socket, name, None)) is not None:
            connected.setsockopt(socket.IPPROTO_TCP, option, value)


def translated(address: DatabaseAddress, error: BaseException) -> LakelogError:
    """Return the error for a connection that could not be opened."""
    if refusal := refusal_of(address, error):
        return ConfigurationError(f"PostgreSQL at {address}: {refusal}", database=str(address))
    problem = str(error) if isinstance(error, NotWritable) else f"cannot be reached: {reason_of(error)}"
    return Unavailable(f"PostgreSQL at {address} {problem}.", unreachable="database", database=str(address))


def reason_of(error: BaseException) -> str:
    """Return a short reason, the same for failures of the same kind."""
    if isinstance(error, NotWritable):
        return str(error)
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
