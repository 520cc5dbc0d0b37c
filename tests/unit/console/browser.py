"""A browser without JavaScript: it keeps the cookie, submits forms and follows redirects, without HTTP in between."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http.cookies import SimpleCookie
from urllib.parse import urlencode, urljoin

from lakelog.console import LocalServer, LoginCodes, create_console
from lakelog.engine import Engine
from lakelog.model.token import Right
from lakelog.server import Drain, HealthSource, ServerSettings, create_app
from lakelog.storage.postgres import open_stores
from tests.kit.fleet import Fleet
from tests.unit.server.harness import Reply, World, world

ORIGIN = "http://lakelog.example"
SAME_ORIGIN = {"sec-fetch-site": "same-origin", "origin": ORIGIN}


class Browser:
    """A session with the console of a server."""

    def __init__(self, made: World, host: str = "lakelog.example", prefix: str = "") -> None:
        self.world = made
        self.prefix = prefix
        """A path below which a proxy serves the server; it is removed from each request."""
        self.host = host
        self.child = ""
        """The id of a child of the installation's token."""
        self.cookies: dict[str, str] = {}

    async def call(
        self, method: str, path: str, *, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Reply:
        """Return the response to one request, and keep its cookies."""
        assert path.startswith(f"{self.prefix}/console"), path
        path, _, query = path.removeprefix(self.prefix).partition("?")
        given = {"host": self.host, **(headers or {})}
        if self.cookies:
            given["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        reply = await self.world.call(
            method, path, query=query, body=body, headers=given, token=None, client=("192.0.2.7", 4711)
        )
        for name, morsel in SimpleCookie(reply.headers.get("set-cookie", "")).items():
            if morsel.value and morsel["max-age"] != "0":
                self.cookies[name] = morsel.value
            else:
                self.cookies.pop(name, None)
        return reply

    async def get(self, path: str) -> Reply:
        """Return the page at a path below the console, after redirects."""
        at = f"{self.prefix}/console/{path}"
        for _ in range(4):
            reply = await self.call("GET", at)
            if reply.status not in (303, 307):
                return reply
            at = urljoin(at, reply.headers["location"])
        raise AssertionError("The redirects do not end.")

    async def post(
        self, path: str, fields: Mapping[str, str] | None = None, headers: Mapping[str, str] = SAME_ORIGIN
    ) -> Reply:
        """Return the response to a submitted form, without following a redirect."""
        path = path.replace("CHILD", self.child)
        fields = {name: text.replace("TOKEN", self.world.token) for name, text in (fields or {}).items()}
        form = {"content-type": "application/x-www-form-urlencoded", **headers}
        return await self.call("POST", f"{self.prefix}/console/{path}", body=urlencode(fields).encode(), headers=form)

    async def submit(self, path: str, fields: Mapping[str, str] | None = None) -> Reply:
        """Submit a form, and return the page that is shown then."""
        reply = await self.post(path, fields)
        if reply.status != 303:
            return reply
        there = urljoin(f"{self.prefix}/console/{path}", reply.headers["location"])
        return await self.get(there.removeprefix(f"{self.prefix}/console/"))

    async def log_in(self, token: str, **fields: str) -> Reply:
        """Log in with a token."""
        return await self.post("login", {"token": token, **fields})


@asynccontextmanager
async def browsing(
    *, authenticate: bool = True, codes: LoginCodes | None = None, host: str = "lakelog.example"
) -> AsyncIterator[Browser]:
    """Yield a browser at a server with the topic `orders` and the group `billing`.

    The group has one leased message, one dead letter with the error `ValueError` and one with `KeyError`.
    """
    async with world(authenticate=authenticate) as made:
        made.app.console = create_console(LocalServer(made.app), codes, made.app.drain.wait)
        for number in range(4):
            await made.publish("orders", *[{"value": {"n": number}, "partition": 0}] * 3, headers={"host": "localhost"})
        consume = {"topic": "orders", "group": "billing", "owner": "w-1", "request_id": "r1", "start_from": "earliest"}
        reply = await made.call("POST", "/v1/consume", json=consume, headers={"host": "localhost"})
        assert reply.status == 200, reply.body
        await _bury(made)
        browser = Browser(made, host)
        if authenticate:
            browser.child = (await made.call("POST", "/v1/tokens", json={"name": "another session"})).json["id"]
        yield browser


@asynccontextmanager
async def console_of(fleet: Fleet) -> AsyncIterator[Browser]:
    """Yield a browser that is logged in to a server in this process, over the databases of a fleet."""
    catalog, cells = await open_stores(fleet.url, {})
    engine = Engine(catalog, cells)
    await engine.start()
    try:
        drain = Drain()
        health = HealthSource(engine, drain, ())
        app = create_app(engine, ServerSettings(authenticate=True), drain=drain, health=health)
        app.console = create_console(LocalServer(app), stopping=drain.wait)
        scope = await catalog.scope_create("default", "default")
        browser = Browser(World(engine=engine, app=app, drain=drain, scope=scope, token=fleet.token or ""))
        assert (await browser.log_in(browser.world.token)).status == 303
        await browser.get("")
        yield browser
    finally:
        await engine.close()


async def _bury(made: World) -> None:
    here = {"host": "localhost"}
    for owner, reason in (("w-2", "ValueError: no total 17"), ("w-3", "KeyError: 'total'")):
        consume = {"topic": "orders", "group": "billing", "owner": owner, "request_id": owner}
        (lease,) = (await made.call("POST", "/v1/consume", json=consume, headers=here)).json["leases"]
        offsets = [message["offset"] for message in lease["messages"]]
        answer = {"verb": "fail", "partition": 0, "token": lease["token"], "offsets": offsets, "reason": reason}
        path = "/v1/topics/orders/groups/billing/answers"
        reply = await made.call("POST", path, json={"owner": owner, "answers": [answer]}, headers=here)
        assert reply.status == 200, reply.body


async def logged_in(browser: Browser, *rights: Right) -> Browser:
    """Return the browser, logged in with a token that has these rights, or all of them."""
    reply = await browser.log_in(await browser.world.make_token(frozenset(rights or Right)))
    assert reply.status == 303, reply.body
    return browser
