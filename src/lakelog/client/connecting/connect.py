"""`connect` and `connect_async`: from a URL to a client. Connections are opened when they are first needed."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any

from lakelog.client.connecting.target import Target, find_target
from lakelog.client.connecting.urls import servers_of
from lakelog.client.processes import log
from lakelog.client.retrying.backoff import CallRetryPolicy
from lakelog.client.worker.lease_extension import LeaseHolder
from lakelog.client.worker.lease_keeper import LeaseKeeper, ProcessLeaseKeeper, ThreadLeaseKeeper
from lakelog.client.worker.pool import WorkerSettings
from lakelog.errors import InvalidRequest, LakelogError
from lakelog.model.arguments import check_positive_seconds, check_text, check_texts
from lakelog.model.lease import Answered, LeaseAnswer
from lakelog.model.names import check_name

# Each of the two loads its own half of the client: loading both takes a tenth of a second longer.
if TYPE_CHECKING:
    from lakelog.client._async.lakelog import AsyncLakelog
    from lakelog.client._async.transport import AsyncTransport
    from lakelog.client._sync.lakelog import Lakelog
    from lakelog.client._sync.transport import Transport
    from lakelog.client.embedding.engine import EmbeddedSettings
    from lakelog.client.embedding.portal import EngineHost

_STORE = "LAKELOG_OBJECT_STORE"
_DEFAULT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class _ClientArguments:
    """The settings from the arguments and the environment."""

    found: Target
    project: str
    environment: str

    def for_keeper(self, settings: EmbeddedSettings | None = None) -> dict[str, Any]:
        """Return what the keeper process of a worker needs."""
        return {
            "url": self.found.url,
            "token": self.found.token,
            "project": self.project,
            "environment": self.environment,
            "cells": dict(settings.cells) if settings else {},
            "allow_not_durable": settings.allow_not_durable if settings else False,
        }


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
            seconds. Then it raises `Unavailable`, or `OutcomeUnknown` if the call may have changed something. Workers
            retry without limit.
        allow_not_durable: Accept a PostgreSQL whose settings can lose acknowledged messages, for tests. Default: False,
            which raises `NotDurable`. For `postgresql://` alone.
        cells: URLs of further databases that hold partitions, by name. Default: none. For `postgresql://` alone.
        object_store: Where cold segments are, such as `s3://bucket/path` or a folder, for `postgresql://` and
            `memory://`. Default: `LAKELOG_OBJECT_STORE`. Over HTTP, the server decides.

    Raises:
        InvalidRequest: An argument is not valid, or no URL was found.
    """
    from lakelog.client._sync.lakelog import Lakelog

    target = _target(url, token, project, environment)
    found = target.found
    if found.is_http:
        from lakelog.client._sync.http import HttpTransport

        servers = servers_of(found.url)
        worker_settings = WorkerSettings(
            transport=lambda: _async_http(found),
            keeper=lambda _: ProcessLeaseKeeper(target.for_keeper()),
            owns_transport=True,
        )
        return Lakelog(HttpTransport(servers, found.token, found), policy_of(timeout), worker_settings, found.place)

    from lakelog.client._sync.embedded import EmbeddedTransport
    from lakelog.client.embedding.engine import EmbeddedSettings
    from lakelog.client.embedding.portal import EngineHost

    settings = EmbeddedSettings(
        url=found.url,
        cells=check_texts("cells", cells or {}),
        allow_not_durable=allow_not_durable,
        object_store=check_text("object_store", object_store or os.environ.get(_STORE, "")) or None,
    )
    host = EngineHost(settings, project, environment, own_thread=True)
    embedded = EmbeddedTransport(host)
    worker_settings = WorkerSettings(
        transport=lambda: _async_embedded(host),
        keeper=_embedded_keeper(host, target.for_keeper(settings)),
        owns_transport=False,
    )
    return Lakelog(embedded, policy_of(timeout), worker_settings, found.place)


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
) -> AsyncLakelog:
    """Return a client for asyncio: as `connect`, with coroutines for all calls.

    Args:
        url: Where to connect. Several servers are separated by commas; the client uses another one if one does not
            answer. Default: `LAKELOG_URL`, then the file `.lakelog/env` that `lakelog dev` writes, in the current
            folder or a parent of it.
        token: The token for `http://` and `https://`. Default: `LAKELOG_TOKEN`, then `.lakelog/env`. An empty text
            sends no token.
        project: The project, for `postgresql://` and `memory://`. Default: "default". Over HTTP, the token decides.
        environment: The environment of the project, for `postgresql://` and `memory://`. Default: "default".
        timeout: How long one call may take with all its retries, in seconds or as a timedelta, above zero. Default: 30
            seconds. Then it raises `Unavailable`, or `OutcomeUnknown` if the call may have changed something. Workers
            retry without limit.
        allow_not_durable: Accept a PostgreSQL whose settings can lose acknowledged messages, for tests. Default: False,
            which raises `NotDurable`. For `postgresql://` alone.
        cells: URLs of further databases that hold partitions, by name. Default: none. For `postgresql://` alone.
        object_store: Where cold segments are, such as `s3://bucket/path` or a folder, for `postgresql://` and
            `memory://`. Default: `LAKELOG_OBJECT_STORE`. Over HTTP, the server decides.

    Raises:
        InvalidRequest: An argument is not valid, or no URL was found.
    """
    from lakelog.client._async.lakelog import AsyncLakelog

    target = _target(url, token, project, environment)
    # Arrow takes a third of a second to load. Loading it with the first message would block the event loop.
    import_module("lakelog.client.reading.decoding")
    import_module("lakelog.client.publishing.columns")
    found = target.found
    if found.is_http:
        transport = _async_http(found)
        worker_settings = WorkerSettings(
            transport=lambda: transport,
            keeper=lambda _: ProcessLeaseKeeper(target.for_keeper()),
            owns_transport=False,
        )
        return AsyncLakelog(transport, policy_of(timeout), worker_settings, found.place)

    from lakelog.client._async.embedded import AsyncEmbeddedTransport
    from lakelog.client.embedding.engine import EmbeddedSettings
    from lakelog.client.embedding.portal import EngineHost

    settings = EmbeddedSettings(
        url=found.url,
        cells=check_texts("cells", cells or {}),
        allow_not_durable=allow_not_durable,
        object_store=check_text("object_store", object_store or os.environ.get(_STORE, "")) or None,
    )
    host = EngineHost(settings, project, environment, own_thread=False)
    embedded = AsyncEmbeddedTransport(host)
    worker_settings = WorkerSettings(
        transport=lambda: embedded,
        keeper=_embedded_keeper(host, target.for_keeper(settings)),
        owns_transport=False,
    )
    return AsyncLakelog(embedded, policy_of(timeout), worker_settings, found.place)


def _async_http(target: Target) -> AsyncTransport:
    from lakelog.client._async.http import AsyncHttpTransport

    return AsyncHttpTransport(servers_of(target.url), target.token, target)


def _async_embedded(host: EngineHost) -> AsyncTransport:
    """Return a transport for workers of a sync client; the client closes the engine."""
    from lakelog.client._async.embedded import AsyncEmbeddedTransport

    return AsyncEmbeddedTransport(host)


def _embedded_keeper(host: EngineHost, settings: Mapping[str, Any]) -> Callable[[AsyncTransport], LeaseKeeper]:
    """Return the keeper: a thread for an engine in memory; over PostgreSQL, a process with an engine of its own."""

    def make(_: AsyncTransport) -> LeaseKeeper:
        if not settings["url"].startswith("memory:"):
            return ProcessLeaseKeeper(settings)
        from lakelog.client._sync.embedded import EmbeddedTransport

        groups = EmbeddedTransport(host).groups

        def send(source: LeaseHolder, answers: Sequence[LeaseAnswer], seconds: float) -> list[Answered | LakelogError]:
            return groups.answer(source.topic, source.group, source.owner, answers, seconds)

        return ThreadLeaseKeeper(send)

    return make


def transport_to(target: Target) -> Transport:
    """Return a transport to the target, for a caller that runs no workers and makes its own client."""
    _check(target)
    if target.is_http:
        from lakelog.client._sync.http import HttpTransport

        return HttpTransport(servers_of(target.url), target.token, target)

    from lakelog.client._sync.embedded import EmbeddedTransport
    from lakelog.client.embedding.engine import EmbeddedSettings
    from lakelog.client.embedding.portal import EngineHost

    settings = EmbeddedSettings(url=target.url, object_store=os.environ.get(_STORE))
    return EmbeddedTransport(EngineHost(settings, _DEFAULT, _DEFAULT, own_thread=True))


def _target(url: str | None, token: str | None, project: str, environment: str) -> _ClientArguments:
    for name, given in (("url", url), ("token", token)):
        if given is not None:
            check_text(name, given)
    check_name("project", project)
    check_name("environment", environment)
    found = find_target(url, token)
    if found.notice:
        log.info("%s", found.notice)
    if found.is_http and (project, environment) != (_DEFAULT, _DEFAULT):
        raise InvalidRequest("Over HTTP the token says which project and environment are meant; leave them out.")
    _check(found)
    return _ClientArguments(found=found, project=project, environment=environment)


def _check(target: Target) -> None:
    if target.is_http:
        if target.token is not None and not (target.token.isascii() and target.token.isprintable()):
            raise InvalidRequest("The token has characters that no token has; copy it again.")
    elif not target.url.startswith(("postgresql://", "postgres://", "memory://")):
        raise InvalidRequest(
            f"{target.place!r} is not a URL of Lakelog. It must begin with http://, https://, postgresql:// or memory://."
        )


def policy_of(timeout: timedelta | float) -> CallRetryPolicy:
    """Return how patient a client with that timeout is."""
    seconds = check_positive_seconds("timeout", timeout)
    return CallRetryPolicy(limit_seconds=seconds, try_seconds=min(10.0, seconds))
