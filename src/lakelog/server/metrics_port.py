"""The port for metrics on loopback: the series of all environments, without a token.

A program on this machine can read the names of groups and topics there, and nothing else.
"""

from __future__ import annotations

import logging
import socket
from ipaddress import ip_address
from urllib.parse import urlsplit

from lakelog.errors import ConfigurationError, LakelogError, NotAllowed, NotFound
from lakelog.server.auth import refusal_of_origin
from lakelog.server.calls import AsgiScope, HttpError, Receive, Response, Send
from lakelog.server.group_metrics import GroupMetrics
from lakelog.server.metrics import CONTENT_TYPE
from lakelog.server.problems import error_response

PATH = "/v1/metrics"

_log = logging.getLogger(__name__)


def metrics_address(text: str) -> tuple[socket.AddressFamily, str, int]:
    """Return the address of `HOST:PORT`. Raise `ConfigurationError` unless it is a port on loopback."""
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
        if not host or not port or parts.netloc != text or parts.username is not None:
            raise ValueError
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        is_loopback = ip_address(address[0]).is_loopback
    except (ValueError, OSError):
        raise ConfigurationError(
            f"--metrics-listen needs an address and a port, such as 127.0.0.1:9464, not '{text}'."
        ) from None
    if not is_loopback:
        raise ConfigurationError(
            f"Metrics without a token are served on loopback only, not on '{text}'. Use --metrics-listen "
            f"127.0.0.1:{port}, or read /v1/metrics of the server with a token that has the right metrics."
        )
    return family, str(address[0]), port


def listen_for_metrics(text: str) -> socket.socket:
    """Return a listening socket at `HOST:PORT` on loopback."""
    family, host, port = metrics_address(text)
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise ConfigurationError(
            f"Cannot listen on {text} for metrics: {error.strerror or error}. Choose another with --metrics-listen."
        ) from error


class MetricsPort:
    """The ASGI app of the port."""

    def __init__(self, metrics: GroupMetrics) -> None:
        self._metrics = metrics

    async def __call__(self, asgi: AsgiScope, receive: Receive, send: Send) -> None:
        try:
            answer = await self._answer(asgi)
        except Exception as error:
            if not isinstance(error, LakelogError | HttpError):
                _log.exception("The metrics of all environments could not be read.")
            answer = error_response(error, b"none")
        headers = [*answer.headers, (b"content-length", b"%d" % len(answer.body))]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})

    async def _answer(self, asgi: AsgiScope) -> Response:
        # A website can let its own name point at this machine.
        if refusal := refusal_of_origin(dict(asgi["headers"])):
            raise NotAllowed(refusal)
        if asgi["path"] != PATH:
            raise NotFound(f"This port serves {PATH} only.")
        if asgi["method"] != "GET":
            raise HttpError(405, f"Read {PATH} with GET.", (b"allow", b"GET"))
        return Response(200, await self._metrics.every_environment(), (b"content-type", CONTENT_TYPE))
