"""Which server a command talks to, with which token: by options, the environment, or what `lakelog dev` wrote here."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from lakelog.errors import Unavailable

if TYPE_CHECKING:
    from lakelog import Lakelog

ENV_FILE = Path(".lakelog") / "env"
DEFAULT_URL = "http://127.0.0.1:8080"
_CONNECT_SECONDS = 3.0

UrlOption = Annotated[
    str | None,
    typer.Option("--url", help="The server. Else LAKELOG_URL, else the one of `lakelog dev` in this folder."),
]
TokenOption = Annotated[str | None, typer.Option("--token", help="The token. Else LAKELOG_TOKEN, else as for --url.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A server's address and a token, and where each came from."""

    url: str
    token: str | None
    url_source: str
    token_source: str


_last: list[Target] = []


def last_used() -> Target | None:
    """The target of the present command, for what an error says."""
    return _last[-1] if _last else None


def find_target(url: str | None, token: str | None) -> Target:
    url, url_source = find_setting("LAKELOG_URL", url, "--url")
    if url is None:
        url, url_source = DEFAULT_URL, "the default"
    token, token_source = find_setting("LAKELOG_TOKEN", token, "--token")
    if token_source == str(ENV_FILE) and url != read_env_file(ENV_FILE).get("LAKELOG_URL"):
        # A secret is for the server it was made for, and goes to no other.
        token, token_source = None, _nowhere("--token", "LAKELOG_TOKEN")
    return Target(url=url, token=token, url_source=url_source, token_source=token_source)


def open_log(url: str | None, token: str | None, *, patient: bool = False) -> Lakelog:
    """The client of the command; close it by `with`. `patient`: a server's restart should not end the work."""
    import lakelog

    target = find_target(url, token)
    _last.append(target)
    _check_reachable(target.url)
    return lakelog.connect(target.url, token=target.token, timeout=120.0 if patient else 30.0)


def _check_reachable(url: str) -> None:
    """Says at once that nobody listens: the client would go on trying, and a person would wait for nothing."""
    from lakelog.client.urls import servers_of

    if not url.startswith(("http://", "https://")):
        return
    why: OSError | None = None
    for server in servers_of(url):
        try:
            socket.create_connection((server.address.host, server.address.port), timeout=_CONNECT_SECONDS).close()
            return
        except OSError as error:
            why = error
    raise Unavailable(f"No server can be reached at {url}: {why.strerror or why if why else 'no address'}.") from why


def find_setting(name: str, option: str | None, option_name: str) -> tuple[str | None, str]:
    """The setting's value and where it was found."""
    if option is not None:
        return option, option_name
    if text := os.environ.get(name):
        return text, name
    if text := read_env_file(ENV_FILE).get(name):
        return text, str(ENV_FILE)
    return None, _nowhere(option_name, name)


def read_env_file(path: Path) -> dict[str, str]:
    """The settings in a file of NAME=text lines; none if it cannot be read, or leads away from this machine."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return {}
    pairs = (line.partition("=") for line in lines if "=" in line and not line.startswith("#"))
    settings = {name.strip(): text.strip() for name, _, text in pairs}
    # A folder that came from elsewhere must not decide where messages are sent.
    urls = [text for name, text in settings.items() if name.endswith("_URL")]
    return settings if all(_is_local(url) for url in urls) else {}


def _nowhere(option: str, variable: str) -> str:
    return f"nowhere (give {option}, or set {variable})"


def _is_local(url: str) -> bool:
    try:
        return urlsplit(url).hostname in ("127.0.0.1", "::1", "localhost")
    except ValueError:
        return False
