"""The meaning of a URL that is given to `connect`: HTTP servers, a PostgreSQL database, or memory. It opens nothing."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from lakelog.client._runtime import SocketAddress
from lakelog.errors import InvalidRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerUrl:
    """The URL of one HTTP server."""

    address: SocketAddress
    prefix: str
    host_header: str

    def __str__(self) -> str:
        return f"The server at {self.address}"


def servers_of(url: str) -> list[ServerUrl]:
    """Return the servers of `http://a:8080,b:8080`, or of several whole URLs separated by commas."""
    servers: list[ServerUrl] = []
    scheme, _, _ = url.partition("://")
    for part in filter(None, (part.strip() for part in url.split(","))):
        split = urlsplit(part if "://" in part else f"{scheme}://{part}")
        if split.scheme not in ("http", "https") or not split.hostname or split.query or split.username:
            raise InvalidRequest(f"{part!r} is not the URL of a server; one looks like http://localhost:8080.")
        tls = split.scheme == "https"
        address = SocketAddress(host=split.hostname, port=_port(part, split.netloc) or (443 if tls else 80), tls=tls)
        servers.append(ServerUrl(address=address, prefix=split.path.rstrip("/"), host_header=split.netloc))
    return servers


def _port(part: str, netloc: str) -> int | None:
    try:
        return urlsplit(f"//{netloc}").port
    except ValueError as exc:
        raise InvalidRequest(f"{part!r} has no valid port; one looks like http://localhost:8080.") from exc
