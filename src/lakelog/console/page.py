"""Pages and actions of the console. `lakelog.console.pages` has the tables of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from lakelog.client._async.lakelog import AsyncLakelog
from lakelog.console.servers import Servers
from lakelog.errors import InvalidRequest
from lakelog.model.token import Right, Token

Values = Mapping[str, object]
"""The values of a template, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewer:
    """The person at the browser.

    Attributes:
        token: The token of the session; None if the server does not require one.
    """

    token: Token | None

    def may(self, right: str) -> bool:
        """Return whether to offer what needs a right. The server checks the right again."""
        return self.token is None or Right(right) in self.token.rights


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A request for a page or an action.

    Attributes:
        log: The client with the viewer's token.
        open_log: Return a client with another token, which the caller closes.
        servers: The servers, for their health.
        viewer: The person at the browser.
        path: The variable parts of the path.
        query: The parameters of the URL.
        now: The time of the request.
        turns: Taken for work that a stream repeats, so that many streams need the memory and the CPU of a few.
        wait: Wait a number of seconds. Return False, at once, if the process of the console stops.
    """

    log: AsyncLakelog
    open_log: Callable[[str], AsyncLakelog]
    servers: Servers
    viewer: Viewer
    path: Mapping[str, str]
    query: Mapping[str, str]
    now: datetime
    turns: asyncio.Semaphore
    wait: Callable[[float], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class Form:
    """The fields of a submitted form."""

    fields: Mapping[str, str] = field(default_factory=dict)

    def text(self, name: str) -> str:
        """Return a field; an empty text if it is missing."""
        return self.fields.get(name, "").strip()

    def required(self, name: str) -> str:
        """Return a field that must not be empty."""
        if not (text := self.text(name)):
            raise InvalidRequest(f"The field '{name}' is empty.")
        return text

    def number(self, name: str) -> int | None:
        """Return a field as a whole number; None if it is empty."""
        if not (text := self.text(name)):
            return None
        if not text.isascii() or not text.isdigit() or len(text) > 18:
            raise InvalidRequest(f"The field '{name}' must be a whole number, not '{text[:40]}'.")
        return int(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page, which reads only.

    Attributes:
        name: The name of the page, and of its template in `templates`.
        path: The path below the console, such as `groups/{group}`.
        title: The title. It may contain variable parts of the path.
        show: Return the values of the template.
        menu: The label in the navigation; empty if the page is not there.
        key: The letter that opens the page after `g`; empty for none.
        right: The right without which the navigation leaves the page out; empty if the page needs no certain right.
    """

    name: str
    path: str
    title: str
    show: Callable[[View], Awaitable[Values]]
    menu: str = ""
    key: str = ""
    right: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file that the browser stores.

    Attributes:
        name: The name of the file.
        media: The media type.
        content: The bytes.
    """

    name: str
    media: str
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """A file that a page offers. It reads only.

    Attributes:
        name: The name of the download.
        path: The path below the console.
        run: Return the file.
    """

    name: str
    path: str
    run: Callable[[View], Awaitable[File]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Server-sent events that a page listens to. It reads only.

    Attributes:
        name: The name of the stream.
        path: The path below the console.
        run: Yield the events. An error before the first one is the response.
    """

    name: str
    path: str
    run: Callable[[View], AsyncGenerator[bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The outcome of an action that is shown once, such as the secret of a new token."""

    template: str
    title: str
    values: Values


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """A change, which a POST makes.

    Attributes:
        name: The name of the action.
        path: The path below the console, such as `groups/{group}/pause`.
        run: Make the change. Return the path of the page to show next, or what to show once.
        done: The sentence that the next page shows.
    """

    name: str
    path: str
    run: Callable[[View, Form], Awaitable[str | Shown]]
    done: str
