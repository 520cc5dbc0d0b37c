"""A browser without JavaScript before the console of a real server: it keeps the cookie and submits forms."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from html import unescape
from types import TracebackType

import httpx

_FORM = re.compile(r'<form method="post" action="(?:\./|\.\./)*([^"]*)".*?</form>', re.DOTALL)
_HIDDEN = re.compile(r'<input type="hidden" name="([^"]*)" value="([^"]*)">')


@dataclass(frozen=True, kw_only=True)
class Form:
    """A form of a page: its path below the console, and its hidden fields."""

    path: str
    fields: Mapping[str, str]


class ConsoleSession:
    """`with ConsoleSession(f"http://127.0.0.1:{port}", token) as session: page = session.get("groups")`."""

    def __init__(self, url: str, token: str, *, seconds: float = 60.0) -> None:
        self._http = httpx.Client(
            base_url=f"{url}/console/",
            headers={"sec-fetch-site": "same-origin"},
            follow_redirects=True,
            timeout=seconds,
            trust_env=False,
        )
        assert self._http.post("login", data={"token": token}).status_code == 200

    def get(self, path: str) -> str:
        """Return the text of a page. Any other status than 200 fails the test."""
        return _text(self._http.get(path))

    def submit(self, form: Form) -> httpx.Response:
        """Return the response to a submitted form, which may say that it failed. Raise `httpx.HTTPError` if there is
        none.
        """
        return self._http.post(form.path, data=dict(form.fields))

    def __enter__(self) -> ConsoleSession:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._http.close()


def form_of(page: str, path: str) -> Form | None:
    """Return the form of the page that changes something at this path; None if it has none."""
    for found in _FORM.finditer(page):
        if found[1] == path:
            return Form(path=path, fields={name: unescape(text) for name, text in _HIDDEN.findall(found[0])})
    return None


def words(page: str) -> str:
    """Return the visible text of a page on one line."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page)).split())


def _text(response: httpx.Response) -> str:
    assert response.status_code == 200, (response.url, response.text[:2000])
    return response.text
