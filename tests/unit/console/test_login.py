"""Login exchanges a token for a child token in a cookie; logout revokes it."""

from __future__ import annotations

import asyncio

import pytest

from lakelog.console import LoginCodes
from lakelog.console.codes import CODE_SECONDS
from lakelog.model.token import Right
from tests.unit.console.browser import SAME_ORIGIN, browsing, logged_in


def test_login_makes_a_child_token() -> None:
    async def scenario() -> None:
        async with browsing() as browser:
            reply = await browser.log_in(browser.world.token, name="Ada")
            assert (reply.status, reply.headers["location"]) == (303, "./")
            cookie = reply.headers["set-cookie"]
            assert cookie.startswith("lakelog-console=lkl_")
            assert "HttpOnly" in cookie and "SameSite=lax" in cookie and "Max-Age=43200" in cookie
            assert "Secure" not in cookie
            assert browser.world.token not in cookie
            listed = (await browser.world.call("GET", "/v1/tokens")).json["tokens"]
            (child,) = [each for each in listed if each.get("parent") and each["id"] != browser.child]
            assert child["name"] == "console of Ada"
            assert (await browser.get("")).status == 200

    asyncio.run(scenario())


@pytest.mark.parametrize("header", ["x-forwarded-proto", None])
def test_the_cookie_over_tls(header: str | None) -> None:
    async def scenario() -> None:
        async with browsing() as browser:
            headers = {**SAME_ORIGIN, **({header: "https"} if header else {})}
            token = f"token={browser.world.token}".encode()
            scope = {} if header else {"scheme": "https"}
            reply = await browser.world.call(
                "POST",
                "/console/login",
                body=token,
                headers={"host": browser.host, **headers},
                token=None,
                scope=scope,
            )
            cookie = reply.headers["set-cookie"]
            assert cookie.startswith("__Host-lakelog-console=lkl_")
            assert "Secure" in cookie and "Path=/;" in cookie and "Domain" not in cookie

    asyncio.run(scenario())


def test_logout_revokes_the_session() -> None:
    async def scenario() -> None:
        async with browsing() as browser:
            await logged_in(browser)
            (secret,) = browser.cookies.values()
            reply = await browser.post("logout")
            assert (reply.status, reply.headers["location"]) == (303, "./login")
            assert browser.cookies == {}
            found = await browser.world.engine.catalog.token_find(_hash(secret))
            assert found is None

    asyncio.run(scenario())


def _hash(secret: str) -> bytes:
    from lakelog.model.token import hash_secret

    return hash_secret(secret)


def test_without_a_session_every_page_leads_to_the_login() -> None:
    async def scenario() -> None:
        async with browsing() as browser:
            reply = await browser.call("GET", "/console/groups/billing")
            assert (reply.status, reply.headers["location"]) == (303, "../login?next=groups/billing")
            page = await browser.get("groups/billing")
            assert b'name="token"' in page.body and b'value="groups/billing"' in page.body
            reply = await browser.log_in(browser.world.token, next="groups/billing")
            assert reply.headers["location"] == "./groups/billing"

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "elsewhere", ["//evil.example", "https://evil.example", "/login", "..//x", "javascript:1", "\\x"]
)
def test_login_leads_to_pages_of_the_console_only(elsewhere: str) -> None:
    async def scenario() -> None:
        async with browsing() as browser:
            reply = await browser.log_in(browser.world.token, next=elsewhere)
            assert reply.headers["location"] == "./"

    asyncio.run(scenario())


@pytest.mark.parametrize("token", ["lkl_wrong", "", "ä", "a\r\nx: y"])
def test_a_wrong_token(token: str) -> None:
    async def scenario() -> None:
        async with browsing() as browser:
            reply = await browser.log_in(token)
            assert reply.status == 401
            assert b'role="alert"' in reply.body
            assert browser.cookies == {}

    asyncio.run(scenario())


def test_less_access() -> None:
    async def scenario() -> None:
        async with browsing() as browser:
            for access, rights in {
                "look": {Right.READ, Right.INSPECT, Right.METRICS},
                "inspect": {Right.INSPECT, Right.METRICS},
                "all": set(Right),
            }.items():
                await browser.log_in(browser.world.token, access=access)
                (secret,) = browser.cookies.values()
                found = await browser.world.engine.catalog.token_find(_hash(secret))
                assert found is not None
                assert set(found[1].rights) == rights
            reply = await browser.log_in(await browser.world.make_token(frozenset({Right.PUBLISH})), access="look")
            assert reply.status == 422

    asyncio.run(scenario())


def test_a_child_token_cannot_log_in() -> None:
    async def scenario() -> None:
        async with browsing() as browser:
            await logged_in(browser)
            (secret,) = browser.cookies.values()
            reply = await browser.log_in(secret)
            assert reply.status == 422
            assert b"child token" in reply.body

    asyncio.run(scenario())


def test_a_one_time_code() -> None:
    async def scenario() -> None:
        now = [0.0]
        codes = LoginCodes(lambda: now[0])
        async with browsing(codes=codes) as browser:
            code = codes.issue(browser.world.token)
            page = await browser.get(f"login?code={code}")
            assert page.status == 200 and browser.world.token.encode() not in page.body
            assert browser.cookies == {}, "a GET uses no code"
            assert (await browser.post("login", {"code": code})).status == 303
            assert (await browser.get("groups")).status == 200
            assert (await browser.post("login", {"code": code})).status == 401, "it works once"
            late = codes.issue(browser.world.token)
            now[0] += CODE_SECONDS
            assert (await browser.post("login", {"code": late})).status == 401
            assert (await browser.post("login", {"code": "x"})).status == 401

    asyncio.run(scenario())


def test_a_revoked_token_ends_the_session() -> None:
    async def scenario() -> None:
        async with browsing() as browser:
            browser.cookies["lakelog-console"] = "lkl_revoked"
            reply = await browser.call("GET", "/console/groups")
            assert reply.status == 303
            assert browser.cookies == {}

    asyncio.run(scenario())


def test_a_server_without_authentication_needs_no_login() -> None:
    async def scenario() -> None:
        async with browsing(authenticate=False, host="localhost:8080") as browser:
            page = await browser.get("groups/billing")
            assert page.status == 200 and b"Log out" not in page.body
            assert b"pause" in page.body
            assert (await browser.submit("groups/billing/pause")).status == 200

    asyncio.run(scenario())


def test_a_server_without_authentication_is_not_shown_to_other_hosts() -> None:
    # A website can let its own name point at this machine.
    async def scenario() -> None:
        async with browsing(authenticate=False, host="evil.example") as browser:
            assert (await browser.get("groups")).status == 403
            assert (await browser.post("groups/billing/pause")).status == 403

    asyncio.run(scenario())
