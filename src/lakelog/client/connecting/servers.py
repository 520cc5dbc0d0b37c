"""Parses the URL of HTTP servers, and words the errors of connections to them. It opens no connection."""

from __future__ import annotations

import os
import re
import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit

from lakelog.client._runtime import SocketAddress, StreamEnded
from lakelog.client.connecting.trust import NO_FILES, TlsFiles, hint_for, refusal_of
from lakelog.errors import ConfigurationError, InvalidRequest, LakelogError, OutcomeUnknown, Unavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerUrl:
    """The URL of one HTTP server."""

    address: SocketAddress
    prefix: str
    host_header: str

    def __str__(self) -> str:
        return f"The server at {self.address}"


def servers_of(url: str, tls_files: TlsFiles = NO_FILES) -> list[ServerUrl]:
    """Return the servers of `http://a:8080,b:8080`, or of several whole URLs separated by commas."""
    servers: list[ServerUrl] = []
    scheme, _, _ = url.partition("://")
    for part in filter(None, (part.strip() for part in url.split(","))):
        split = urlsplit(part if "://" in part else f"{scheme}://{part}")
        if split.scheme not in ("http", "https") or not split.hostname or split.query or split.username:
            shown = part if split.password is None else part.replace(f":{split.password}@", ":***@")
            raise InvalidRequest(f"{shown!r} is not the URL of a server; one looks like http://localhost:8080.")
        tls = split.scheme == "https"
        port = _port(part, split.netloc) or (443 if tls else 80)
        address = SocketAddress(host=split.hostname, port=port, tls=tls, tls_files=tls_files)
        servers.append(ServerUrl(address=address, prefix=split.path.rstrip("/"), host_header=split.netloc))
    return servers


def _port(part: str, netloc: str) -> int | None:
    try:
        return urlsplit(f"//{netloc}").port
    except ValueError as exc:
        raise InvalidRequest(f"{part!r} has no valid port; one looks like http://localhost:8080.") from exc


_ERRNO = re.compile(r"\[Errno (\d+)\]")


def cannot_connect(address: SocketAddress, exc: OSError) -> LakelogError:
    """Return the error for a connection that could not be opened. Nothing was sent."""
    if isinstance(exc, ssl.SSLError) and (text := refusal_of(exc, str(address), address.tls_files)):
        return ConfigurationError(text)
    reason = reason_of(exc)
    return Unavailable(f"Cannot connect to {address}: {reason}.", unreachable="server", reason=reason)


def no_answer(address: SocketAddress, exc: BaseException, seconds: float, *, is_first: bool = False) -> LakelogError:
    """Return the error for a request that was sent, in whole or in part, and got no response.

    `is_first`: the request was the first one on its connection.
    """
    if isinstance(exc, ssl.SSLError) and (text := refusal_of(exc, str(address), address.tls_files)):
        # Servers refuse a client's certificate after the handshake.
        return ConfigurationError(text)
    if isinstance(exc, TimeoutError):
        return OutcomeUnknown(f"The server at {address} did not answer within {seconds:.1f} s.")
    if isinstance(exc, ValueError):
        return OutcomeUnknown(f"The answer of the server at {address} is not valid HTTP: {exc}.")
    text = f"The connection to {address} was lost before the answer arrived: {reason_of(exc)}."
    if is_first and isinstance(exc, StreamEnded | ConnectionError):
        # A server that refuses a client's TLS usually closes the connection without an alert.
        text = f"{text} {hint_for(address.tls_files if address.tls else None)}".rstrip()
    return OutcomeUnknown(text)


def reason_of(exc: BaseException) -> str:
    """Return why a connection failed, such as 'connection refused'."""
    if isinstance(exc, TimeoutError):
        return "it timed out"
    # asyncio replaces the operating system's text, or joins several failures. Threads get the text itself.
    if not isinstance(exc, ssl.SSLError) and (number := _ERRNO.search(str(exc))):
        return os.strerror(int(number[1])).lower()
    text = str(getattr(exc, "strerror", None) or exc).rstrip(".")
    return text[0].lower() + text[1:] if text else type(exc).__name__
