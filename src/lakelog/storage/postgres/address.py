"""The address of a database in log lines and errors: host, port, database and user, never the password."""

from __future__ import annotations

import getpass
import os
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

from lakelog.errors import ConfigurationError

_DEFAULT_PORT = "5432"


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseAddress:
    """The address of a database. `str` returns `host:port/database`, with several hosts separated by commas."""

    hosts: str
    database: str
    user: str

    def __str__(self) -> str:
        return f"{self.hosts}/{self.database}"

    @property
    def has_several_hosts(self) -> bool:
        return "," in self.hosts

    def each_host(self) -> list[dict[str, str | int]]:
        """Return the host and the port of each node, as arguments of the driver. A socket folder has no port."""
        found: list[dict[str, str | int]] = []
        for host in self.hosts.split(","):
            name, _, port = host.rpartition(":")
            found.append({"host": host} if host.startswith("/") else {"host": name.strip("[]"), "port": int(port)})
        return found


def address_of(url: str) -> DatabaseAddress:
    """Return the address in a `postgresql://` URL. Missing parts come from PG* variables, as in the driver."""
    try:
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query))
    except ValueError:
        raise invalid_url() from None
    login, _, hosts = parts.netloc.rpartition("@")
    environ = os.environ
    port = query.get("port") or environ.get("PGPORT") or _DEFAULT_PORT
    named = [_with_port(host, port) for host in (hosts or query.get("host") or _host()).split(",")]
    user = unquote(login.partition(":")[0]) or query.get("user") or environ.get("PGUSER") or _login_name()
    database = unquote(parts.path[1:]) or query.get("dbname") or query.get("database") or environ.get("PGDATABASE")
    if "@" in parts.path:
        # A slash in the password ended the host part too early: the rest of the password is in the path.
        raise invalid_url()
    return DatabaseAddress(hosts=",".join(named), database=database or user, user=user)


def _with_port(host: str, default: str) -> str:
    if host.startswith("/"):
        return host
    name, separator, port = host.rpartition(":")
    if not separator or host.endswith("]"):
        return f"{host}:{default}"
    if not port.isdigit():
        raise invalid_url()
    return f"{name}:{port}"


def _host() -> str:
    return os.environ.get("PGHOST") or "localhost"


def _login_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def invalid_url() -> ConfigurationError:
    """Return the error for a URL that cannot be parsed. It does not repeat the URL, which may contain the password."""
    return ConfigurationError(
        "The database URL is not valid. Use postgresql://user:password@host:port/database, and percent-encode special "
        "characters in the password."
    )
