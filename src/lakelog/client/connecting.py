"""`connect` and `connect_async`: from a URL to a client. Nothing is opened before it is needed."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from lakelog.client._async.http import AsyncHttpTransport
from lakelog.client._async.lakelog import AsyncLakelog
from lakelog.client._async.transport import AsyncTransport
from lakelog.client._sync.http import HttpTransport
from lakelog.client._sync.lakelog import Lakelog
from lakelog.client._sync.transport import Transport
from lakelog.client.backoff import Policy
from lakelog.client.group_values import Answer, Answered
from lakelog.client.positions import seconds_of
from lakelog.client.urls import servers_of
from lakelog.client.work.crew import Workshop
from lakelog.client.work.extending import Source
from lakelog.client.work.keeping import Keeper, ProcessKeeper, ThreadKeeper
from lakelog.errors import InvalidRequest, LakelogError

if TYPE_CHECKING:
    from lakelog.client.hub import HubSettings

_URL, _TOKEN, _STORE = "LAKELOG_URL", "LAKELOG_TOKEN", "LAKELOG_OBJECT_STORE"
_DEFAULT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """What the arguments and the environment say together."""

    url: str
    token: str | None
    project: str
    environment: str

    @property
    def is_http(self) -> bool:
        return self.url.startswith(("http://", "https://"))

    def for_keeper(self, settings: HubSettings | None = None) -> dict[str, Any]:
        """What the process beside a worker has to know."""
        return {
            "url": self.url,
            "token": self.token,
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
    """A client for `http://host:8080` (several hosts with commas), `postgresql://…` (no server), or `memory://name`.

    Without a URL, `LAKELOG_URL`; without a token, `LAKELOG_TOKEN`. `timeout` limits each call with all its repeats.
    `allow_not_durable` and `cells` (further databases by name) are for postgresql:// alone.
    `object_store` is where cold segments are, where there is no server; else `LAKELOG_OBJECT_STORE`.
    """
    target = _target(url, token, project, environment)
    if target.is_http:
        servers = servers_of(target.url)
        workshop = Workshop(
            transport=lambda: AsyncHttpTransport(servers, target.token),
            keeper=lambda _: ProcessKeeper(target.for_keeper()),
            owns_transport=True,
        )
        return Lakelog(HttpTransport(servers, target.token), _policy(timeout), workshop)

    from lakelog.client.embedded import EmbeddedTransport
    from lakelog.client.hub import HubSettings

    settings = HubSettings(
        url=target.url,
        cells=cells or {},
        allow_not_durable=allow_not_durable,
        object_store=object_store or os.environ.get(_STORE),
    )
    embedded = EmbeddedTransport(settings, project, environment)
    workshop = Workshop(
        transport=embedded.for_workers,
        keeper=_embedded_keeper(embedded.blocking, target.for_keeper(settings)),
        owns_transport=False,
    )
    return Lakelog(embedded, _policy(timeout), workshop)


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
    """The same for asyncio."""
    target = _target(url, token, project, environment)
    if target.is_http:
        transport = AsyncHttpTransport(servers_of(target.url), target.token)
        workshop = Workshop(
            transport=lambda: transport,
            keeper=lambda _: ProcessKeeper(target.for_keeper()),
            owns_transport=False,
        )
        return AsyncLakelog(transport, _policy(timeout), workshop)

    from lakelog.client.embedded import AsyncEmbeddedTransport
    from lakelog.client.hub import HubSettings

    settings = HubSettings(
        url=target.url,
        cells=cells or {},
        allow_not_durable=allow_not_durable,
        object_store=object_store or os.environ.get(_STORE),
    )
    embedded = AsyncEmbeddedTransport(settings, project, environment)
    workshop = Workshop(
        transport=lambda: embedded,
        keeper=_embedded_keeper(embedded.blocking, target.for_keeper(settings)),
        owns_transport=False,
    )
    return AsyncLakelog(embedded, _policy(timeout), workshop)


def _embedded_keeper(
    blocking: Callable[[], Transport], settings: Mapping[str, Any]
) -> Callable[[AsyncTransport], Keeper]:
    """An engine in memory is in this process; over PostgreSQL, the process beside has an engine of its own."""

    def make(_: AsyncTransport) -> Keeper:
        if not settings["url"].startswith("memory:"):
            return ProcessKeeper(settings)
        groups = blocking().groups

        def send(source: Source, answers: Sequence[Answer], seconds: float) -> list[Answered | LakelogError]:
            return groups.answer(source.topic, source.group, source.owner, answers, seconds)

        return ThreadKeeper(send)

    return make


def _target(url: str | None, token: str | None, project: str, environment: str) -> _Target:
    found = url or os.environ.get(_URL)
    if not found:
        raise InvalidRequest(f"Say where to connect: connect('http://localhost:8080'), or set {_URL}.")
    target = _Target(url=found, token=token or os.environ.get(_TOKEN), project=project, environment=environment)
    if target.is_http:
        if (project, environment) != (_DEFAULT, _DEFAULT):
            raise InvalidRequest("Over HTTP the token says which project and environment are meant; leave them out.")
        if target.token is not None and not (target.token.isascii() and target.token.isprintable()):
            raise InvalidRequest("The token has characters that no token has; copy it again.")
    elif not found.startswith(("postgresql://", "postgres://", "memory://")):
        scheme = found.partition(":")[0]
        raise InvalidRequest(
            f"{scheme!r} is not known; a URL begins with http://, https://, postgresql:// or memory://."
        )
    return target


def _policy(timeout: timedelta | float) -> Policy:
    seconds = seconds_of(timeout)
    if seconds <= 0:
        raise InvalidRequest("A timeout is above zero.")
    return Policy(limit_seconds=seconds, try_seconds=min(10.0, seconds))
