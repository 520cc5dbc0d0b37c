"""Finds the server of a client: its URL and its token, from arguments, the environment or the file of `lakelog dev`.

URL and token each come from the first of these places that has it. This module does not contact a server.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from lakelog.client.connecting.env_file import EnvFile, find_env_file, is_loopback, short_path
from lakelog.client.connecting.trust import NO_FILES, TlsFiles, find_tls_files
from lakelog.errors import InvalidRequest, LakelogError, NotAuthenticated

URL, TOKEN = "LAKELOG_URL", "LAKELOG_TOKEN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The value of a setting, and where it was found."""

    text: str
    source: str
    file: EnvFile | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A server's URL, a token, and where each was found. The place is empty for an argument of a Python function."""

    url: str
    token: str | None
    url_source: str
    token_source: str
    notice: str | None
    """A sentence for the user if the URL or the token came from a file."""
    tls_files: TlsFiles = NO_FILES

    def __repr__(self) -> str:
        # A token, or a password in the URL, must not appear in a traceback or a log.
        return "Target(…)"

    @property
    def is_http(self) -> bool:
        return self.url.startswith(("http://", "https://"))

    @property
    def place(self) -> str:
        """The URL without user, password and parameters, for display."""
        scheme, mark, rest = self.url.partition("://")
        return f"{scheme}{mark}{rest.rpartition('@')[2].partition('?')[0]}"

    def explain(self, error: LakelogError) -> LakelogError:
        """Return the error. If the URL or the token may be wrong, the error says where it was found."""
        detail = error.detail
        if isinstance(error, NotAuthenticated) and not self.token:
            detail = f"The server at {self.place} requires a token. Pass one, or set {TOKEN}."
        elif isinstance(error, NotAuthenticated) and self.token_source:
            detail = f"{detail} The token came from {self.token_source}."
        elif error.subject.get("unreachable") == "server" and self.url_source:
            detail = f"{detail} The URL came from {self.url_source}."
        return error if detail is error.detail else type(error)(detail, **error.subject)


def find_target(
    url: str | None,
    token: str | None,
    *,
    default_url: str | None = None,
    names: tuple[str, str] = ("", ""),
    tls_files: TlsFiles | None = None,
) -> Target:
    """Return the server that the arguments, the environment or the file define. `names` are the names of the options.

    An empty `token` means no token. A token from the file is used for the URL in the same file only.
    """
    server = find_setting(URL, url or None, names[0])
    if server is None:
        if default_url is None:
            raise InvalidRequest(
                f"No server is configured. Pass a URL, such as lakelog.connect('http://localhost:8080'), set {URL}, "
                "or start `lakelog dev` in this folder."
            )
        server = Setting(text=default_url, source="the built-in default")
    secret = _find_token(token, names[1], server.text)
    return Target(
        url=server.text,
        token=secret.text if secret else None,
        url_source=server.source,
        token_source=secret.source if secret and secret.text else "",
        notice=_notice(server, secret),
        tls_files=tls_files or find_tls_files(),
    )


def find_setting(name: str, given: str | None, given_name: str) -> Setting | None:
    """Return the setting: the argument, the environment variable of that name, or the line of the file."""
    if given is not None:
        return Setting(text=given, source=given_name)
    if text := os.environ.get(name):
        return Setting(text=text, source=name)
    file = find_env_file()
    text = file.settings.get(name) if file else None
    return Setting(text=text, source=f"{name} in {file.path}", file=file) if file and text else None


def _find_token(given: str | None, given_name: str, url: str) -> Setting | None:
    if given is None and not os.environ.get(TOKEN) and not (url.startswith("http") and is_loopback(url)):
        # The file cannot have a token for this URL: do not read it, and report nothing about it.
        return None
    found = find_setting(TOKEN, given, given_name)
    if found and found.file and found.file.settings.get(URL, "").rstrip("/") != url.rstrip("/"):
        # A token is a secret between the user and the server that it was made for.
        return None
    return found


def _notice(server: Setting, secret: Setting | None) -> str | None:
    if server.file:
        return f"Using {server.text} from {short_path(server.file.path)}"
    return f"Using the token from {short_path(secret.file.path)}" if secret and secret.file else None
