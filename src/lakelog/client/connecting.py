"""`connect` and `connect_async`: from a URL to a client. Nothing is opened before it is needed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from lakelog.client._async.http import AsyncHttpTransport
from lakelog.client._async.lakelog import AsyncLakelog
from lakelog.client._async.transport import AsyncTransport
from lakelog.client._sync.http import HttpTransport
from lakelog.client._sync.lakelog import Lakelog
from lakelog.client._sync.transport import Transport
from lakelog.client.backoff import Policy
from lakelog.client.positions import seconds_of
from lakelog.client.urls import servers_of
from lakelog.errors import InvalidRequest

_URL, _TOKEN = "LAKELOG_URL", "LAKELOG_TOKEN"
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


def connect(
    url: str | None = None,
    *,
    token: str | None = None,
    project: str = _DEFAULT,
    environment: str = _DEFAULT,
    timeout: timedelta | float = 30.0,
    allow_not_durable: bool = False,
    cells: Mapping[str, str] | None = None,
) -> Lakelog:
    """A client for `http://host:8080` (several hosts with commas), `postgresql://…` (no server), or `memory://name`.

    Without a URL, `LAKELOG_URL`; without a token, `LAKELOG_TOKEN`. `timeout` limits each call with all its repeats.
    `allow_not_durable` and `cells` (further databases by name) are for postgresql:// alone.
    """
    target = _target(url, token, project, environment)
    transport: Transport
    if target.is_http:
        transport = HttpTransport(servers_of(target.url), target.token)
    else:
        from lakelog.client.embedded import EmbeddedTransport
        from lakelog.client.hub import HubSettings

        settings = HubSettings(url=target.url, cells=cells or {}, allow_not_durable=allow_not_durable)
        transport = EmbeddedTransport(settings, project, environment)
    return Lakelog(transport, _policy(timeout))


def connect_async(
    url: str | None = None,
    *,
    token: str | None = None,
    project: str = _DEFAULT,
    environment: str = _DEFAULT,
    timeout: timedelta | float = 30.0,
    allow_not_durable: bool = False,
    cells: Mapping[str, str] | None = None,
) -> AsyncLakelog:
    """The same for asyncio."""
    target = _target(url, token, project, environment)
    transport: AsyncTransport
    if target.is_http:
        transport = AsyncHttpTransport(servers_of(target.url), target.token)
    else:
        from lakelog.client.embedded import AsyncEmbeddedTransport
        from lakelog.client.hub import HubSettings

        settings = HubSettings(url=target.url, cells=cells or {}, allow_not_durable=allow_not_durable)
        transport = AsyncEmbeddedTransport(settings, project, environment)
    return AsyncLakelog(transport, _policy(timeout))


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
