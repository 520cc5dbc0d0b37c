"""Every change is made with the right to manage, and is refused to other callers and from other websites."""

from __future__ import annotations

import asyncio

import pytest

from lakelog.console.pages import ACTIONS
from lakelog.model.token import Right
from tests.unit.console.browser import ORIGIN, Browser, browsing, logged_in
from tests.unit.console.examples import FORMS

OF_ANY_TOKEN = {"create_token", "revoke_token"}
"""Actions on the viewer's own tokens, which need no right to manage: those of others are not found."""


async def _records(browser: Browser) -> int:
    """Return how many changes were made."""
    reply = await browser.world.call("GET", "/v1/audit", headers={"host": "localhost"})
    return sum(each["outcome"] == "done" for each in reply.json["records"])


def test_every_change() -> None:
    async def scenario() -> None:
        async with browsing() as browser:
            await logged_in(browser)
            # In the order of the table: what is paused is resumed after that.
            for action in ACTIONS:
                before = await _records(browser)
                reply = await browser.submit(*FORMS[action.name])
                assert reply.status == 200, (action.name, reply.body)
                assert action.done in reply.body.decode(), action.name
                assert await _records(browser) == before + 1, action.name

    asyncio.run(scenario())


REFUSED = {
    "no token": (None, {"sec-fetch-site": "same-origin"}, {401}),
    "read": (Right.READ, {"sec-fetch-site": "same-origin"}, {403}),
    "inspect": (Right.INSPECT, {"sec-fetch-site": "same-origin"}, {403}),
    "other environment": ("other", {"sec-fetch-site": "same-origin"}, {404}),
    "cross-site": (Right.MANAGE, {"sec-fetch-site": "cross-site", "origin": ORIGIN}, {403}),
    "same site, other origin": (Right.MANAGE, {"sec-fetch-site": "same-site", "origin": ORIGIN}, {403}),
    "other origin": (Right.MANAGE, {"origin": "http://evil.example"}, {403}),
    "other port": (Right.MANAGE, {"origin": f"{ORIGIN}:81"}, {403}),
    "opaque origin": (Right.MANAGE, {"origin": "null"}, {403}),
    "missing origin": (Right.MANAGE, {}, {403}),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_refused_changes(reason: str) -> None:
    async def scenario() -> None:
        who, headers, statuses = REFUSED[reason]
        async with browsing() as browser:
            if who == "other":
                scope = await browser.world.other_scope("other", "other")
                assert (await browser.log_in(await browser.world.make_token(scope=scope))).status == 303
            elif who is not None:
                await logged_in(browser, *({who, Right.READ} if who is Right.MANAGE else {who}))
            before = await _records(browser)
            for action in ACTIONS:
                path, fields = FORMS[action.name]
                reply = await browser.post(path, fields, headers)
                if action.name in OF_ANY_TOKEN and who in (Right.READ, Right.INSPECT, "other"):
                    assert reply.status == (200 if action.name == "create_token" else 404), reply.body
                    before = await _records(browser)
                    continue
                if action.name == "create_mark" and who == "other":
                    # It is set in the viewer's own environment.
                    assert reply.status == 303
                    continue
                assert reply.status in statuses, (action.name, reply.status, reply.body)
                assert await _records(browser) == before, action.name
            if who is Right.MANAGE:
                assert (await browser.post("logout", {}, headers)).status == 403
                assert (await browser.get("groups")).status == 200

    asyncio.run(scenario())


def test_a_change_is_accepted_with_an_origin_alone() -> None:
    # Browsers send `Sec-Fetch-Site` only with TLS and to this machine.
    async def scenario() -> None:
        async with browsing() as browser:
            await logged_in(browser)
            path, fields = FORMS["pause"]
            assert (await browser.post(path, fields, {"origin": ORIGIN})).status == 303

    asyncio.run(scenario())


def test_no_get_changes_anything() -> None:
    async def scenario() -> None:
        async with browsing() as browser:
            await logged_in(browser)
            before = await _records(browser)
            for action in ACTIONS:
                path, fields = FORMS[action.name]
                query = "&".join(f"{name}={text}" for name, text in fields.items())
                await browser.get(f"{path}?{query}")
            assert await _records(browser) == before

    asyncio.run(scenario())


def test_the_audit_log_names_the_viewer() -> None:
    async def scenario() -> None:
        async with browsing() as browser:
            await browser.log_in(browser.world.token, name="Ada")
            await browser.submit(*FORMS["pause"])
            reply = await browser.world.call("GET", "/v1/audit", query="operation=pause_group")
            (record,) = reply.json["records"]
            assert (record["actor_name"], record["address"]) == ("console of Ada", "192.0.2.7")

    asyncio.run(scenario())


def test_a_form_that_is_too_large() -> None:
    async def scenario() -> None:
        async with browsing() as browser:
            await logged_in(browser)
            assert (await browser.post("groups/billing/pause", {"topic": "x" * (2 << 20)})).status == 413

    asyncio.run(scenario())
