"""`connect` and `connect_async`: from a URL to a client. Connections are opened when they are first needed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING

from lakelog.client.connecting.env_file import OBJECT_STORE
from lakelog.client.connecting.servers import servers_of
from lakelog.client.connecting.target import Target, find_target
from lakelog.client.connecting.trust import find_tls_files
from lakelog.client.processes import log
from lakelog.client.retrying import CallRetryPolicy
from lakelog.client.worker.defaults import Defaults
from lakelog.client.worker.lease_extension import LeaseHolder
from lakelog.client.worker.lease_keeper import LeaseKeeper, ProcessLeaseKeeper, ThreadLeaseKeeper
from lakelog.client.worker.pool import WorkerSettings
from lakelog.errors import InvalidRequest, LakelogError
from lakelog.model.arguments import check_positive_seconds, check_seconds, check_text, check_texts, refusal
from lakelog.model.lease import Answered, LeaseAnswer
from lakelog.model.names import check_name

# Each of the two loads its own half of the client: loading both takes a tenth of a second longer.
if TYPE_CHECKING:
    from lakelog.client._async.lakelog import AsyncLakelog
    from lakelog.client._async.transport import AsyncTransport
    from lakelog.client._sync.lakelog import Lakelog
    from lakelog.client._sync.transport import Transport
    from lakelog.client.embedding.portal import EngineHost

_RETENTION = "LAKELOG_RETENTION_SECONDS"
_DEFAULT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class _ClientArguments:
    """The arguments of `connect` and `connect_async` that select the server or database."""

    url: str | None = None
    token: str | None = None
    project: str = _DEFAULT
    environment: str = _DEFAULT
    allow_not_durable: bool = False
    cells: Mapping[str, str] | None = None
    object_store: str | None = None
    ca_file: str | None = None
    client_certificate: str | None = None
    client_key: str | None = None

    def target(self) -> Target:
        """Return the server or database, from the arguments and the environment."""
        for name in ("url", "token", "ca_file", "client_certificate", "client_key"):
            if (given := getattr(self, name)) is not None:
                check_text(name, given)
        check_name("project", self.project)
        check_name("environment", self.environment)
        files = find_tls_files(self.ca_file, self.client_certificate, self.client_key)
        found = find_target(self.url, self.token, tls_files=files)
        if found.notice:
            log.info("%s", found.notice)
        if found.is_http and (self.project, self.environment) != (_DEFAULT, _DEFAULT):
            raise InvalidRequest("Over HTTP, the token determines project and environment. Omit both arguments.")
        _check(found)
        return found

    def host(self, url: str, own_thread: bool) -> EngineHost:
        """Return the host of an engine over this database."""
        from lakelog.client.embedding.engine import EmbeddedSettings
        from lakelog.client.embedding.portal import EngineHost

        settings = EmbeddedSettings(
            url=url,
            cells=check_texts("cells", self.cells or {}),
            allow_not_durable=self.allow_not_durable,
            object_store=check_text("object_store", self.object_store or os.environ.get(OBJECT_STORE, "")) or None,
            retention_seconds=_retention_seconds(),
        )
        return EngineHost(settings, self.project, self.environment, own_thread=own_thread)


def _retention_seconds() -> float:
    """Return how often an embedded engine enforces retention: `LAKELOG_RETENTION_SECONDS`, or the default."""
    from lakelog.maintenance import RETENTION_SECONDS

    text = os.environ.get(_RETENTION, "")
    try:
        return check_seconds(_RETENTION, float(text)) if text else RETENTION_SECONDS
    except ValueError:
        raise refusal(_RETENTION, "a number of seconds, or 0 to switch retention off", text) from None


class _Connection:
    """Makes the parts of a client: over HTTP, or with an engine in this process."""

    def __init__(self, arguments: _ClientArguments, *, own_thread: bool) -> None:
        self.target = arguments.target()
        self._arguments = arguments
        self._host = None if self.target.is_http else arguments.host(self.target.url, own_thread)

    @property
    def is_http(self) -> bool:
        return self._host is None

    def transport(self) -> Transport:
        return _transport(self.target, self._host)

    def async_transport(self) -> AsyncTransport:
        if self._host is None:
            from lakelog.client._async.http import AsyncHttpTransport

            return AsyncHttpTransport(
                servers_of(self.target.url, self.target.tls_files), self.target.token, self.target
            )
        from lakelog.client._async.embedded import AsyncEmbeddedTransport

        return AsyncEmbeddedTransport(self._host)

    def keeper(self, _: AsyncTransport) -> LeaseKeeper:
        """Return the keeper of a worker's leases: a thread for an engine in memory, else a separate process."""
        if self._host is not None and self.target.url.startswith("memory:"):
            transport = self.transport()

            def send(
                holder: LeaseHolder, answers: Sequence[LeaseAnswer], seconds: float
            ) -> list[Answered | LakelogError]:
                return transport.answer(holder.request(answers), seconds)

            return ThreadLeaseKeeper(send)
        given = self._arguments
        settings = {
            "url": self.target.url,
            "token": self.target.token,
            "project": given.project,
            "environment": given.environment,
            "cells": dict(given.cells or {}),
            "allow_not_durable": given.allow_not_durable,
            "tls_files": asdict(self.target.tls_files),
        }
        return ProcessLeaseKeeper(settings)


def connect(
    url: str | None = None,
    *,
    token: str | None = None,
    project: str = _DEFAULT,
    environment: str = _DEFAULT,
    timeout: timedelta | float = 30.0,
    allow_not_durable: bool = False,
    cells: Mapping[str, str] | None = None,
    object_store: str | None = None,
    ca_file: str | None = None,
    client_certificate: str | None = None,
    client_key: str | None = None,
    defaults: Defaults | None = None,
) -> Lakelog:
    """Return a client for a server (`http://host:8080`), a database (`postgresql://…`) or memory (`memory://name`).

    With `postgresql://`, the engine runs in this process, and no server is needed. `memory://` is for tests: clients
    with the same name share their messages until the process ends; without a name, a client has its own. Nothing is
    opened before the first call.

    Args:
        url: Where to connect. Several servers are separated by commas; the client uses another one if one does not
            answer. Default: `LAKELOG_URL`, then the file `.lakelog/env` that `lakelog dev` writes, in the current
            folder or a parent of it.
        token: The token for `http://` and `https://`. Default: `LAKELOG_TOKEN`, then `.lakelog/env`. An empty text
            sends no token.
        project: The project, for `postgresql://` and `memory://`. Default: "default". Over HTTP, the token decides.
        environment: The environment of the project, for `postgresql://` and `memory://`. Default: "default".
        timeout: How long one call may take with all its retries, in seconds or as a timedelta, above zero. Default: 30
            seconds. After the limit, the call raises `Unavailable`, or `OutcomeUnknown` if the call may have changed
            something. Workers retry without limit.
        allow_not_durable: Accept a PostgreSQL whose settings can lose acknowledged messages, for tests. Default: False,
            which raises `NotDurable`. For `postgresql://` alone.
        cells: URLs of further databases that hold partitions, by name. Default: none. For `postgresql://` alone.
        object_store: Where cold segments are, such as `s3://bucket/path` or a folder, for `postgresql://` and
            `memory://`. Default: `LAKELOG_OBJECT_STORE`. Over HTTP, the server decides.
        ca_file: A PEM file with the authorities that may issue the server's certificate, for `https://`. Default:
            `LAKELOG_CA_FILE`, then the authorities of the operating system. The file is read again when it changes.
        client_certificate: A PEM file with the client's certificate, for servers that require one. Default:
            `LAKELOG_CLIENT_CERTIFICATE`, then none.
        client_key: The PEM file with the key of `client_certificate`. Default: `LAKELOG_CLIENT_KEY`, then the file of
            the certificate.
        defaults: Defaults of the subscriptions of this client. An argument of `subscribe` goes before them. Default:
            the built-in defaults of `subscribe`.

    Raises:
        InvalidRequest: An argument is not valid, or no URL was found.
    """
    from lakelog.client._sync.lakelog import Lakelog

    arguments = _ClientArguments(
        url=url,
        token=token,
        project=project,
        environment=environment,
        allow_not_durable=allow_not_durable,
        cells=cells,
        object_store=object_store,
        ca_file=ca_file,
        client_certificate=client_certificate,
        client_key=client_key,
    )
    found = _Connection(arguments, own_thread=True)
    workers = WorkerSettings(
        transport=found.async_transport,
        keeper=found.keeper,
        owns_transport=found.is_http,
        defaults=_checked(defaults),
    )
    return Lakelog(found.transport(), policy_of(timeout), workers, found.target.place)


def connect_async(
    url: str | None = None,
    *,
    token: str | None = None,
    project: str = _DEFAULT,
    environment: str = _DEFAULT,
    timeout: timedelta | float = 30.0,
    allow_not_durable: bool = False,
    cells: Mapping[str, str] | None = None,
    object_store: str | None = None,
    ca_file: str | None = None,
    client_certificate: str | None = None,
    client_key: str | None = None,
    defaults: Defaults | None = None,
) -> AsyncLakelog:
    """Return a client for asyncio, like `connect`, with coroutines for all calls.

    Args:
        url: Where to connect. Several servers are separated by commas; the client uses another one if one does not
            answer. Default: `LAKELOG_URL`, then the file `.lakelog/env` that `lakelog dev` writes, in the current
            folder or a parent of it.
        token: The token for `http://` and `https://`. Default: `LAKELOG_TOKEN`, then `.lakelog/env`. An empty text
            sends no token.
        project: The project, for `postgresql://` and `memory://`. Default: "default". Over HTTP, the token decides.
        environment: The environment of the project, for `postgresql://` and `memory://`. Default: "default".
        timeout: How long one call may take with all its retries, in seconds or as a timedelta, above zero. Default: 30
            seconds. After the limit, the call raises `Unavailable`, or `OutcomeUnknown` if the call may have changed
            something. Workers retry without limit.
        allow_not_durable: Accept a PostgreSQL whose settings can lose acknowledged messages, for tests. Default: False,
            which raises `NotDurable`. For `postgresql://` alone.
        cells: URLs of further databases that hold partitions, by name. Default: none. For `postgresql://` alone.
        object_store: Where cold segments are, such as `s3://bucket/path` or a folder, for `postgresql://` and
            `memory://`. Default: `LAKELOG_OBJECT_STORE`. Over HTTP, the server decides.
        ca_file: A PEM file with the authorities that may issue the server's certificate, for `https://`. Default:
            `LAKELOG_CA_FILE`, then the authorities of the operating system. The file is read again when it changes.
        client_certificate: A PEM file with the client's certificate, for servers that require one. Default:
            `LAKELOG_CLIENT_CERTIFICATE`, then none.
        client_key: The PEM file with the key of `client_certificate`. Default: `LAKELOG_CLIENT_KEY`, then the file of
            the certificate.
        defaults: Defaults of the subscriptions of this client. An argument of `subscribe` goes before them. Default:
            the built-in defaults of `subscribe`.

    Raises:
        InvalidRequest: An argument is not valid, or no URL was found.
    """
    from lakelog.client._async.lakelog import AsyncLakelog

    arguments = _ClientArguments(
        url=url,
        token=token,
        project=project,
        environment=environment,
        allow_not_durable=allow_not_durable,
        cells=cells,
        object_store=object_store,
        ca_file=ca_file,
        client_certificate=client_certificate,
        client_key=client_key,
    )
    found = _Connection(arguments, own_thread=False)
    # Arrow takes a third of a second to load. Loading it with the first message would block the event loop.
    import_module("lakelog.client.reading.decoding")
    import_module("lakelog.client.publishing.columns")
    transport = found.async_transport()
    workers = WorkerSettings(
        transport=lambda: transport, keeper=found.keeper, owns_transport=False, defaults=_checked(defaults)
    )
    return AsyncLakelog(transport, policy_of(timeout), workers, found.target.place)


def _checked(defaults: Defaults | None) -> Defaults:
    if defaults is not None and not isinstance(defaults, Defaults):
        raise refusal("defaults", "a lakelog.Defaults(…)", defaults)
    return defaults or Defaults()


def transport_to(target: Target) -> Transport:
    """Return a transport to the target, for a caller that runs no workers and makes its own client."""
    _check(target)
    host = None if target.is_http else _ClientArguments().host(target.url, own_thread=True)
    return _transport(target, host)


def _transport(target: Target, host: EngineHost | None) -> Transport:
    if host is None:
        from lakelog.client._sync.http import HttpTransport

        return HttpTransport(servers_of(target.url, target.tls_files), target.token, target)
    from lakelog.client._sync.embedded import EmbeddedTransport

    return EmbeddedTransport(host)


def _check(target: Target) -> None:
    if target.is_http:
        if target.token is not None and not (target.token.isascii() and target.token.isprintable()):
            raise InvalidRequest("The token has characters that a token cannot have. Copy it again.")
    elif not target.url.startswith(("postgresql://", "postgres://", "memory://")):
        raise InvalidRequest(
            f"{target.place!r} is not a URL of Lakelog. It must begin with http://, https://, "
            f"postgresql:// or memory://."
        )


def policy_of(timeout: timedelta | float) -> CallRetryPolicy:
    """Return the retry policy of a client with that timeout."""
    seconds = check_positive_seconds("timeout", timeout)
    return CallRetryPolicy(limit_seconds=seconds, try_seconds=min(10.0, seconds))
