"""Opens the client of a command, for the server from its options, the environment or `lakelog dev`.

Tab completion asks the same server for the names of topics and groups.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from lakelog.cli.output import say
from lakelog.client.connecting import target as client_target
from lakelog.client.connecting.target import Target
from lakelog.errors import LakelogError

if TYPE_CHECKING:
    from lakelog import Lakelog

DEFAULT_URL = "http://127.0.0.1:8080"
_CONNECT_SECONDS = 3.0

UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url", help="URL of the server. Default: LAKELOG_URL, then the server of `lakelog dev` in this folder."
    ),
]
TokenOption = Annotated[
    str | None, typer.Option("--token", help="The token; '' for none. Default: LAKELOG_TOKEN, then as for --url.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


_last: list[Target] = []


def last_used() -> Target | None:
    """Return the server of the current command, for error messages."""
    return _last[-1] if _last else None


def find_target(url: str | None, token: str | None) -> Target:
    """Return the server of a command with these options."""
    return client_target.find_target(url, token, default_url=DEFAULT_URL, names=("", "--token"))


def open_log(url: str | None, token: str | None, *, patient: bool = False) -> Lakelog:
    """Return the client of the command, a context manager. With `patient`, it retries during a server restart."""
    from lakelog import Lakelog
    from lakelog.cli.waiting import Watch
    from lakelog.client.connecting.connect import policy_of, transport_to

    found = find_target(url, token)
    _last.append(found)
    if found.notice and sys.stderr.isatty():
        # Only on a terminal: a person may have expected another server, but a script names its server.
        say(found.notice)
    transport = transport_to(found)
    watch = Watch(found.place)
    watch.start()
    try:
        watch.run(_check_reachable, found)
        return Lakelog(watch.over(transport), policy_of(120.0 if patient else 30.0))
    except BaseException:
        watch.stop()
        raise


def open_worker_log(url: str | None, token: str | None) -> Lakelog:
    """Return a client that can run consumers, a context manager. It retries during a server restart."""
    import lakelog

    found = find_target(url, token)
    _last.append(found)
    if found.notice and sys.stderr.isatty():
        say(found.notice)
    _check_reachable(found)
    return lakelog.connect(found.url, token=found.token or "", timeout=120.0)


def _check_reachable(found: Target) -> None:
    """Raise immediately if no server is listening; the client would retry and let the user wait."""
    from lakelog.client.connecting.servers import cannot_connect, servers_of

    failure: LakelogError | None = None
    for server in servers_of(found.url) if found.is_http else ():
        try:
            socket.create_connection((server.address.host, server.address.port), timeout=_CONNECT_SECONDS).close()
            return
        except OSError as error:
            failure = cannot_connect(server.address, error)
    if failure is not None:
        raise found.explain(failure)


_SECONDS = 1.0
"""Timeout of the call that fetches the names."""


def complete_topic(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of topics that begin with `incomplete`."""
    return _names(context, incomplete, lambda log: (topic.name for topic in log.topics()))


def complete_group(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of groups that begin with `incomplete`."""
    return _names(context, incomplete, lambda log: (group.name for group in log.groups()))


def _names(context: typer.Context, incomplete: str, find: Callable[[Lakelog], Iterable[str]]) -> list[str]:
    import contextlib
    import io

    with contextlib.redirect_stderr(io.StringIO()):
        try:
            import lakelog
            from lakelog.cli.target import find_target

            found = find_target(context.params.get("url"), context.params.get("token"))
            with lakelog.connect(found.url, token=found.token or "", timeout=_SECONDS) as log:
                return [name for name in find(log) if name.startswith(incomplete)]
        except Exception:
            return []
