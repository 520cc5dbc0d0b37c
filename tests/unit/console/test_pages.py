"""Every page of the table is shown, with relative links, and without inline scripts and styles."""

from __future__ import annotations

import asyncio
import re
from html import unescape
from html.parser import HTMLParser
from urllib.parse import urljoin

import pytest

from lakelog.console.pages import ACTIONS, PAGES, groups
from lakelog.console.security import CSP
from lakelog.model.token import Right
from tests.unit.console.browser import browsing, logged_in
from tests.unit.console.examples import FORMS, PATHS
from tests.unit.docs.markdown import ROOT, section, table


class _Attributes(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, str, str]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [(tag, name, value or "") for name, value in attrs]


def test_every_page_and_action_has_an_example() -> None:
    assert set(PATHS) == {page.name for page in PAGES}
    assert set(FORMS) == {action.name for action in ACTIONS}


def test_every_page() -> None:
    async def scenario() -> None:
        async with browsing() as browser:
            await logged_in(browser)
            for page in PAGES:
                reply = await browser.get(PATHS[page.name])
                html = reply.body.decode()
                assert reply.status == 200, html
                assert reply.headers["content-security-policy"] == CSP
                assert reply.headers["cache-control"] == "no-store"
                assert "<h1>" in html, page.name
                attributes = _Attributes(html).found
                assert not [each for each in attributes if each[1] == "style" or each[1].startswith("on")], page.name
                assert not re.search(r"<script(?! src)|<style", html), page.name
                links = [value for _, name, value in attributes if name in ("href", "src", "action")]
                outside = [link for link in links if link.startswith(("/", "http", "javascript:"))]
                assert links and not outside, page.name

    asyncio.run(scenario())


def test_every_link_leads_to_a_page() -> None:
    async def scenario() -> None:
        async with browsing() as browser:
            await logged_in(browser)
            seen: set[str] = set()
            for page in PAGES:
                html = (await browser.get(PATHS[page.name])).body.decode()
                links = {value for tag, name, value in _Attributes(html).found if (tag, name) == ("a", "href")}
                for link in links:
                    at = urljoin(f"/console/{PATHS[page.name]}", link).partition("#")[0]
                    if at not in seen:
                        reply = await browser.get(at.removeprefix("/console/"))
                        assert reply.status == 200, (page.name, link, reply.body)
                        seen.add(at)
            assert {"/console/topics/orders", "/console/groups/billing", "/console/audit"} <= seen

    asyncio.run(scenario())


def test_a_viewer_who_may_only_inspect_sees_no_button_for_changes() -> None:
    async def scenario() -> None:
        async with browsing() as browser:
            await logged_in(browser, Right.INSPECT)
            for page in PAGES:
                html = (await browser.get(PATHS[page.name])).body.decode()
                actions = {value for tag, name, value in _Attributes(html).found if (tag, name) == ("form", "action")}
                # Links are relative.
                assert {action.lstrip("./") for action in actions} <= {"logout"} | _own_token_actions(), page.name

    asyncio.run(scenario())


def _own_token_actions() -> set[str]:
    """Return the actions that need no right to manage."""
    return {path for name, (path, _) in FORMS.items() if name in ("create_token", "revoke_token")}


def test_the_page_of_the_documentation() -> None:
    text = (ROOT / "docs" / "console.md").read_text()
    shown = {row[0] for row in table(section(text, "Pages"), "page")}
    assert {page.menu for page in PAGES if page.menu} <= shown
    tests = re.findall(r"`([\w/]+\.py)::(\w+)`", text)
    assert tests
    for file, name in tests:
        assert f"def {name}(" in (ROOT / "tests" / file).read_text(), (file, name)


def test_a_topic_with_columns() -> None:
    async def scenario() -> None:
        async with browsing() as browser:
            await logged_in(browser)
            assert b"<h2>Columns</h2>" not in (await browser.get("topics/orders")).body
            schema = {"properties": {"<id>": {"type": "array", "items": {"type": "string"}}}}
            asked = {"columns": schema}
            done = await browser.world.call("PATCH", "/v1/topics/orders", json=asked, headers={"host": "localhost"})
            assert done.status == 200, done.body
            html = (await browser.get("topics/orders")).body.decode()
            assert "<dt>&lt;id&gt;</dt><dd>list&lt;string&gt;</dd>" in html

    asyncio.run(scenario())


def test_the_example_of_a_cluster_in_two_topics() -> None:
    async def scenario() -> None:
        async with browsing() as browser:
            await logged_in(browser)
            made, here = browser.world, {"host": "localhost"}
            await made.engine.topics.create(made.scope, "zebras", 1)
            await made.publish("zebras", {"value": 1}, headers=here)
            consume = {"topic": "zebras", "group": "billing", "owner": "w-4", "start_from": "earliest"}
            (lease,) = (await made.call("POST", "/v1/consume", json=consume, headers=here)).json["leases"]
            answer = {"verb": "fail", "partition": 0, "token": lease["token"], "offsets": [0]}
            answers = {"owner": "w-4", "answers": [{**answer, "reason": "ValueError: no total 18"}]}
            path = "/v1/topics/zebras/groups/billing/answers"
            assert (await made.call("POST", path, json=answers, headers=here)).status == 200
            html = (await browser.get("groups/billing/dead")).body.decode()
            assert "<td>orders, zebras</td>" in html
            for link in re.findall(r'href="../../(m/[^"]+)"', html):
                assert (await browser.get(unescape(link))).status == 200, link

    asyncio.run(scenario())


def test_below_another_path() -> None:
    async def scenario() -> None:
        async with browsing() as browser:
            browser.prefix = "/a/b"
            assert b"Log in" in (await browser.get("groups/billing")).body
            reply = await browser.log_in(browser.world.token, next="groups/billing")
            assert urljoin("/a/b/console/login", reply.headers["location"]) == "/a/b/console/groups/billing"
            for page in PAGES:
                html = (await browser.get(PATHS[page.name])).body.decode()
                for tag, name, link in _Attributes(html).found:
                    if name in ("href", "src", "action", "data-tail"):
                        there = urljoin(f"/a/b/console/{PATHS[page.name]}", link)
                        assert there.startswith(("/a/b/console/", "data:")), (page.name, tag, link)
            paused = await browser.submit("groups/billing/pause")
            assert b"The group is paused." in paused.body

    asyncio.run(scenario())


def test_groups_are_shown_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "SHOWN", 2)

    async def scenario() -> None:
        async with browsing() as browser:
            await logged_in(browser)
            for name in ("shipping", "bills", "email", "abc"):
                await browser.world.engine.group_directory.resolve(browser.world.scope, name, create=True)

            async def names(path: str) -> tuple[list[str], list[str]]:
                html = (await browser.get(path)).body.decode()
                named = re.findall(r'<th scope="row"><a href="[./]*groups/([a-z]+)"', html)
                return named, [unescape(link) for link in re.findall(r'<a href="([^"]*)">(?:Next|First) groups', html)]

            assert await names("groups") == (["abc", "billing"], ["?sort=name&after=billing"])
            assert await names("groups?after=billing") == (["bills", "email"], ["?sort=name", "?sort=name&after=email"])
            assert await names("groups?after=email") == (["shipping"], ["?sort=name"])
            assert await names("groups?after=shipping") == ([], ["?sort=name"])
            assert await names("groups?q=Bill") == (["billing", "bills"], [])
            assert await names("groups?sort=lag&q=i") == (["billing", "bills"], ["?sort=lag&q=i&after=bills"])
            following = (["email", "shipping"], ["?sort=lag&q=i"])
            assert await names("groups?sort=lag&q=i&after=bills") == following

    asyncio.run(scenario())


def test_an_unknown_page() -> None:
    async def scenario() -> None:
        async with browsing() as browser:
            await logged_in(browser)
            for method in ("GET", "POST"):
                headers = {"sec-fetch-site": "same-origin"}
                reply = await browser.call(method, "/console/nothing/here", headers=headers)
                assert reply.status == 404
                assert reply.headers["content-security-policy"] == CSP
                assert b"../../static/console.css" in reply.body or b"../static/console.css" in reply.body

    asyncio.run(scenario())


def test_a_group_that_does_not_exist() -> None:
    async def scenario() -> None:
        async with browsing() as browser:
            await logged_in(browser)
            reply = await browser.get("groups/nobody")
            assert reply.status == 404
            assert b"group_not_found" in reply.body

    asyncio.run(scenario())


def test_without_a_slash_at_the_end() -> None:
    async def scenario() -> None:
        async with browsing() as browser:
            reply = await browser.call("GET", "/console")
            assert (reply.status, reply.headers["location"]) == (307, "console/")
            assert (await browser.call("GET", "/consoles")).status == 404

    asyncio.run(scenario())


def test_static_files_are_kept_by_the_browser() -> None:
    async def scenario() -> None:
        async with browsing() as browser:
            html = (await browser.get("login")).body.decode()
            for path in re.findall(r'(?:href|src)="\./(static/[^"]+)"', html):
                reply = await browser.get(path)
                assert reply.status == 200
                assert "immutable" in reply.headers["cache-control"]
                assert reply.headers["x-content-type-options"] == "nosniff"
            assert (await browser.get("static/app.py")).status == 404

    asyncio.run(scenario())
