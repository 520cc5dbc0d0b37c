"""The ASGI app of the console: routes from the table of pages, sessions, and errors as pages.

All links are relative, so that the console works below any path.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from datetime import UTC, datetime
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from lakelog.client._async.lakelog import AsyncLakelog
from lakelog.console import login
from lakelog.console.codes import LoginCodes
from lakelog.console.page import Action, Download, Form, Page, Shown, Stream, Values, View, Viewer
from lakelog.console.pages import ACTIONS, DOWNLOADS, PAGES, STREAMS
from lakelog.console.rendering import STATIC, render
from lakelog.console.security import (
    HEADERS,
    check_name_of_machine,
    check_same_origin,
    end_session,
    session_of,
    set_session,
)
from lakelog.console.servers import AsgiApp, AsgiScope, Receive, Send, Servers, ViewerAddress
from lakelog.console.viewers import Viewers
from lakelog.errors import LakelogError, NotAuthenticated, NotFound, Overloaded, TooLarge, Unavailable
from lakelog.wire.problems import STATUS

MOUNT_PATH = "/console"
"""The path of the console on a server."""
MAX_FORM_BYTES = 1 << 20
MAX_STREAMS = 100
"""How many pages of a process may listen to events at the same time."""
COMPRESSED_BYTES = 2000
"""A page with fewer bytes is not compressed."""
STREAM_TURNS = 2
"""How many of them read at the same time."""
_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]
_MEDIA = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_FILES = {path.name: path for path in STATIC.iterdir() if path.suffix in _MEDIA}
_DONE = {action.name: action.done for action in ACTIONS}
_MENU = [page for page in PAGES if page.menu]

_log = logging.getLogger(__name__)


def create_console(
    servers: Servers, codes: LoginCodes | None = None, stopping: Callable[[], Awaitable[object]] | None = None
) -> AsgiApp:
    """Return the console as an ASGI app.

    Args:
        servers: The servers that the console calls.
        codes: The one-time codes that a login accepts. Default: none.
        stopping: Return when the process begins to stop; streams of events end then. Default: never.
    """
    pages = Starlette(routes=_Console(servers, codes, stopping or asyncio.Event().wait).routes())

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not scope["path"]:
            # Relative links need the slash.
            await RedirectResponse(f"{MOUNT_PATH[1:]}/", 307)(scope, receive, send)
        else:
            await pages(scope, receive, send)

    return app


class _Console:
    """The handlers of the routes."""

    def __init__(self, servers: Servers, codes: LoginCodes | None, stopping: Callable[[], Awaitable[object]]) -> None:
        self._servers = servers
        self._codes = codes
        self._stopping = stopping
        self._viewers = Viewers()
        self._streams = 0
        self._turns = asyncio.Semaphore(STREAM_TURNS)

    def routes(self) -> list[Route]:
        """Return all routes. The first that matches handles a request."""
        return [
            Route("/static/{name}", self._static),
            Route("/login", self._guarded(self._login_page), methods=["GET"]),
            Route("/login", self._guarded(self._log_in), methods=["POST"]),
            Route("/logout", self._guarded(self._log_out), methods=["POST"]),
            *(Route(f"/{page.path}", self._guarded(self._page(page)), methods=["GET"]) for page in PAGES),
            *(Route(f"/{each.path}", self._guarded(self._download(each)), methods=["GET"]) for each in DOWNLOADS),
            *(Route(f"/{each.path}", self._guarded(self._stream(each)), methods=["GET"]) for each in STREAMS),
            *(Route(f"/{each.path}", self._guarded(self._action(each)), methods=["POST"]) for each in ACTIONS),
            Route("/{path:path}", self._guarded(self._missing), methods=_METHODS),
        ]

    def _guarded(self, handler: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        """Return the handler with the rules that hold for all pages. Errors become pages."""

        async def guarded(request: Request) -> Response:
            try:
                check_same_origin(request.method, request.headers)
                response = await handler(request)
            except NotAuthenticated as error:
                response = self._to_login(request, error)
            except LakelogError as error:
                response = self._failed(request, error)
            except Exception:
                _log.exception("The console could not show %s.", _path(request))
                detail = "The console could not show this page. The log of the server says why."
                response = self._failed(request, LakelogError(detail))
            response.headers.update(HEADERS)
            response.headers["cache-control"] = "no-store"
            return response

        return guarded

    # Pages and actions ------------------------------------------------------------------------------------------------

    def _page(self, page: Page) -> Callable[[Request], Awaitable[Response]]:
        async def show(request: Request) -> Response:
            async with self._log(request) as log:
                view = await self._view(request, log)
                values = await page.show(view)
            title = page.title.format_map(view.path)
            done = _DONE.get(view.query.get("done", ""), "")
            return self._rendered(request, page.name, title, {**values, "done": done}, view.viewer)

        return show

    def _download(self, download: Download) -> Callable[[Request], Awaitable[Response]]:
        async def send(request: Request) -> Response:
            async with self._log(request) as log:
                file = await download.run(await self._view(request, log))
            disposition = {"content-disposition": f'attachment; filename="{file.name}"'}
            return Response(file.content, 200, disposition, file.media)

        return send

    def _stream(self, stream: Stream) -> Callable[[Request], Awaitable[Response]]:
        async def send(request: Request) -> Response:
            pieces = self._pieces(stream, request)
            first = await anext(pieces)  # Its error is a response with a status of its own.

            async def rest() -> AsyncGenerator[bytes]:
                async with aclosing(pieces):
                    yield first
                    async for piece in pieces:
                        yield piece

            # Without this header, nginx would hold events back.
            return StreamingResponse(rest(), 200, {"x-accel-buffering": "no"}, "text/event-stream")

        return send

    async def _pieces(self, stream: Stream, request: Request) -> AsyncGenerator[bytes]:
        if self._streams >= MAX_STREAMS:
            raise Overloaded("Too many pages listen to this console. Close some of them.", retry_after=10)
        self._streams += 1
        try:
            async with self._log(request) as log:
                async for piece in stream.run(await self._view(request, log)):
                    yield piece
        finally:
            self._streams -= 1

    async def _wait(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping()
        except TimeoutError:
            return True
        return False

    def _action(self, action: Action) -> Callable[[Request], Awaitable[Response]]:
        async def run(request: Request) -> Response:
            form = await _form(request)
            async with self._log(request) as log:
                view = await self._view(request, log)
                outcome = await action.run(view, form)
            if isinstance(outcome, Shown):
                return self._rendered(request, outcome.template, outcome.title, outcome.values, view.viewer)
            mark = "&" if "?" in outcome else "?"
            return RedirectResponse(f"{_root(request)}{outcome}{mark}done={action.name}", 303)

        return run

    async def _missing(self, request: Request) -> Response:
        raise NotFound("The console has no such page.")

    def _log(self, request: Request, secret: str | None = None) -> AsyncLakelog:
        return self._servers.log(secret or session_of(request), _address(request))

    async def _view(self, request: Request, log: AsyncLakelog) -> View:
        secret = session_of(request)
        viewer = await self._viewers.find(log, secret)
        if viewer.token is None:
            check_name_of_machine(request.headers.get("host", ""))
        return View(
            log=log,
            open_log=lambda secret: self._log(request, secret),
            servers=self._servers,
            viewer=viewer,
            path={name: str(text) for name, text in request.path_params.items()},
            query={**request.query_params, **_last_event(request)},
            now=datetime.now(UTC),
            turns=self._turns,
            wait=self._wait,
        )

    # Login ------------------------------------------------------------------------------------------------------------

    async def _login_page(self, request: Request) -> Response:
        values = {"code": request.query_params.get("code", ""), "next": request.query_params.get("next", "")}
        return self._rendered(request, "login", "Log in", {**values, "refusal": "", "access": login.ACCESS})

    async def _log_in(self, request: Request) -> Response:
        form = await _form(request)
        try:
            async with self._log(request, login.token_of(form, self._codes)) as log:
                issued = await login.log_in(log, form)
        except LakelogError as error:
            values = {"code": "", "next": form.text("next"), "refusal": error.detail, "access": login.ACCESS}
            return self._rendered(request, "login", "Log in", values, status=STATUS[type(error)])
        response = RedirectResponse(_next_page(request, form), 303)
        set_session(request, response, issued.secret)
        return response

    async def _log_out(self, request: Request) -> Response:
        async with self._log(request) as log:
            await login.log_out(log)
        self._viewers.forget(session_of(request))
        response = RedirectResponse(f"{_root(request)}login", 303)
        end_session(request, response)
        return response

    def _to_login(self, request: Request, error: NotAuthenticated) -> Response:
        """Send a reader to the login page, and refuse a change."""
        self._viewers.forget(session_of(request))
        if request.method == "GET":
            wanted = _path(request).strip("/")
            response: Response = RedirectResponse(f"{_root(request)}login{f'?next={wanted}' if wanted else ''}", 303)
        else:
            response = self._failed(request, error)
        if session_of(request):
            end_session(request, response)
        return response

    # Responses --------------------------------------------------------------------------------------------------------

    def _failed(self, request: Request, error: LakelogError) -> Response:
        values = {"error": error, "is_outage": isinstance(error, Unavailable)}
        return self._rendered(request, "failed", "Not possible", values, status=STATUS[type(error)])

    def _rendered(
        self,
        request: Request,
        template: str,
        title: str,
        values: Values,
        viewer: Viewer | None = None,
        status: int = 200,
    ) -> Response:
        here = _path(request).strip("/")
        frame: Mapping[str, object] = {
            "root": _root(request),
            "title": title,
            "menu": [page for page in _MENU if viewer is not None and (not page.right or viewer.may(page.right))],
            "here": here,
            "section": here.partition("/")[0],
            "viewer": viewer,
            "now": datetime.now(UTC),
            "done": "",
        }
        response = HTMLResponse(render(template, {**frame, **values}), status)
        return _compressed(request, response) if request.method == "GET" else response

    async def _static(self, request: Request) -> Response:
        file = _FILES.get(request.path_params["name"])
        if file is None:
            return Response("There is no such file.", 404, HEADERS, "text/plain")
        headers = {**HEADERS, "cache-control": "public, max-age=31536000, immutable"}
        return Response(file.read_bytes(), 200, headers, _MEDIA[file.suffix])


def _compressed(request: Request, response: Response) -> Response:
    """Return the page in fewer bytes, if the browser accepts that.

    The response to a form is not compressed, because it may have a secret, of which the length would tell something.
    """
    body = bytes(response.body)
    if len(body) >= COMPRESSED_BYTES and "gzip" in request.headers.get("accept-encoding", ""):
        response.body = gzip.compress(body, 1, mtime=0)
        response.headers.update({"content-encoding": "gzip", "content-length": str(len(response.body))})
    response.headers["vary"] = "accept-encoding"
    return response


def _address(request: Request) -> ViewerAddress:
    client = request.client
    return ViewerAddress(
        host=request.headers.get("host", ""), client=None if client is None else (client.host, client.port)
    )


def _last_event(request: Request) -> dict[str, str]:
    """Return the id of the last event that the browser has, if it connects to a stream again."""
    last = request.headers.get("last-event-id")
    return {} if last is None else {"after": last}


def _path(request: Request) -> str:
    path: str = request.scope["path"]
    return path


def _root(request: Request) -> str:
    """Return the relative path from the requested page to the console's own root."""
    return "../" * (_path(request).count("/") - 1) or "./"


def _next_page(request: Request, form: Form) -> str:
    """Return the page to show after the login: only one of the console's own."""
    wanted = form.text("next")
    is_own = any(Route(f"/{page.path}", _nothing).path_regex.match(f"/{wanted}") for page in PAGES)
    return f"{_root(request)}{wanted if is_own else ''}"


async def _nothing(request: Request) -> Response:
    raise NotFound


async def _form(request: Request) -> Form:
    """Return the fields of the body. A form of the console has no file."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_FORM_BYTES:
            raise TooLarge(f"The form has more than {MAX_FORM_BYTES >> 20} MiB.")
    return Form(dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True)))
