"""Redriving dead letters with changes: what an edit does, what the preview says, and that no part redrives twice."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime
from html import unescape

import pytest

from lakelog.console.page import Form
from lakelog.console.redriving import Edit, edit_of, sample_of
from lakelog.errors import InvalidRequest
from lakelog.model.dead_letters import DeadLetter
from lakelog.model.kinds import DeadLetterState
from lakelog.model.masks import Masks
from tests.unit.console.browser import Browser, browsing, logged_in

UNTIL = {"until": "2100-01-01T00:00:00Z"}


def _letter(raw: bytes | None, content_type: str | None = "application/json") -> DeadLetter:
    return DeadLetter(
        id="1-0-7",
        topic="orders",
        partition=0,
        offset=7,
        error="E",
        deliveries=1,
        failures=1,
        at=datetime(2026, 1, 31, tzinfo=UTC),
        owner="w",
        state=DeadLetterState.DEAD,
        raw=raw,
        content_type=content_type,
    )


def _edited(raw: bytes, **fields: str) -> bytes | None:
    repair = edit_of(Form(fields)).apply(_letter(raw))
    return None if repair is None else repair.value


@pytest.mark.parametrize(
    ("fields", "before", "after"),
    [
        ({}, b'{"a":1}', None),
        ({"edit": "set", "field": "a", "value": "2"}, b'{"a":1}', b'{"a":2}'),
        ({"edit": "set", "field": "a", "value": "1"}, b'{"a":1}', None),
        ({"edit": "set", "field": "b.c", "value": '"x"'}, b'{"a":1}', b'{"a":1,"b":{"c":"x"}}'),
        ({"edit": "set", "field": "b.c", "value": "null"}, b'{"b":{"d":1}}', b'{"b":{"d":1,"c":null}}'),
        ({"edit": "remove", "field": "a"}, b'{"a":1,"b":2}', b'{"b":2}'),
        ({"edit": "remove", "field": "b.c"}, b'{"b":{"c":1,"d":2}}', b'{"b":{"d":2}}'),
        ({"edit": "remove", "field": "x.y"}, b'{"a":1}', None),
        ({"edit": "replace", "value": "[1]"}, b"\xff", b"[1]"),
    ],
)
def test_edits(fields: dict[str, str], before: bytes, after: bytes | None) -> None:
    assert _edited(before, **fields) == after


@pytest.mark.parametrize(
    ("fields", "refusal"),
    [
        ({"edit": "set", "field": "a", "value": "x"}, "not JSON"),
        ({"edit": "set", "field": "a.", "value": "1"}, "The field must be a name"),
        ({"edit": "set", "value": "1"}, "'field' is empty"),
        ({"edit": "drop"}, "The edit must be one of"),
    ],
)
def test_edits_that_make_no_sense(fields: dict[str, str], refusal: str) -> None:
    with pytest.raises(InvalidRequest, match=refusal):
        edit_of(Form(fields))


def test_a_value_without_fields_cannot_be_edited_and_is_shown_so() -> None:
    edit = Edit(kind="set", path=("a",), value=1)
    for raw, content_type in (
        (b"[1]", "application/json"),
        (b"{", "application/json"),
        (b"x", "text/plain"),
        (None, None),
    ):
        sample = sample_of(_letter(raw, content_type), edit, Masks())
        assert "is not a JSON object" in sample.refusal and sample.after is None
    changed = sample_of(_letter(b'{"a":0}'), edit, Masks())
    assert (changed.before, changed.after, changed.refusal) == ('{\n  "a": 0\n}', '{\n  "a": 1\n}', "")


async def _page(browser: Browser, path: str) -> str:
    reply = await browser.get(path)
    assert reply.status == 200, reply.body
    return " ".join(unescape(reply.body.decode()).split())


def test_clusters_lead_to_their_dead_letters_and_to_a_redrive_with_a_preview() -> None:
    async def scenario() -> None:
        async with browsing() as browser:
            await logged_in(browser)
            page = await _page(browser, "groups/billing/dead")
            assert "ValueError: no total <n>" in page and "KeyError: <text>" in page
            (cluster, _) = dict.fromkeys(re.findall(r"dead\?cluster=([0-9a-f]{12})", page))
            chosen = await _page(browser, f"groups/billing/dead?cluster={cluster}")
            assert chosen.count("m/1-0-") == 1 and "By cause" not in chosen
            preview = await _page(browser, f"groups/billing/redrive?cluster={cluster}&edit=set&field=total&value=17")
            assert "1 dead letter matches the cluster" in preview
            assert "1 changed, 0 unchanged" in preview and '"total": 17' in preview
            fields = {"cluster": cluster, "edit": "set", "field": "total", "value": "17", **UNTIL}
            done = await browser.submit("groups/billing/redrive", fields)
            assert done.status == 200 and b"The redrive has ended." in done.body
            message = await browser.world.fetch("orders", 0, "offset=12")
            assert message.json["messages"][0]["value"]["total"] == 17
            # Again: nothing is left of the cluster.
            again = await browser.submit("groups/billing/redrive", fields)
            assert b"<dt>Redriven</dt><dd>0</dd>" in again.body
            assert len((await browser.world.fetch("orders", 0, "offset=12")).json["messages"]) == 1

    asyncio.run(scenario())


def test_a_redrive_in_parts_continues_where_it_stopped_and_publishes_none_twice() -> None:
    async def scenario() -> None:
        async with browsing() as browser:
            await logged_in(browser)
            fields: dict[str, str] = {"edit": "none", "rate": "1", "matching": "2", **UNTIL}
            first = await browser.submit("groups/billing/redrive", fields)
            assert b"The redrive goes on." in first.body and b"data-continue" in first.body
            hidden = dict(re.findall(r'name="([a-z]+)" value="([^"]*)"', first.body.decode()))
            assert hidden["redriven"] == "1" and hidden["after"]
            # The same part again, as after a lost reply: its dead letter is redriven already.
            repeated = await browser.submit("groups/billing/redrive", fields)
            assert repeated.status == 200
            last = await browser.submit(
                "groups/billing/redrive", {name: unescape(text) for name, text in hidden.items()}
            )
            assert last.status == 200
            assert b"<dt>Redriven</dt><dd>1</dd>" in last.body
            assert b"1 more was redriven by a part whose response was lost" in last.body
            messages = (await browser.world.fetch("orders", 0, "offset=12")).json["messages"]
            assert len(messages) == 2, "one for each dead letter"

    asyncio.run(scenario())


def test_dead_letters_that_died_after_the_preview_stay() -> None:
    async def scenario() -> None:
        async with browsing() as browser:
            await logged_in(browser)
            before = {"edit": "none", "until": "2020-01-01T00:00:00Z"}
            done = await browser.submit("groups/billing/redrive", before)
            assert b"<dt>Redriven</dt><dd>0</dd>" in done.body
            refused = await browser.submit("groups/billing/redrive", {"edit": "none", "rate": "0", **UNTIL})
            assert refused.status == 422
            assert (await browser.submit("groups/billing/redrive", {"edit": "none"})).status == 422

    asyncio.run(scenario())


def test_what_cannot_be_edited_is_refused_and_stays_a_dead_letter() -> None:
    async def scenario() -> None:
        async with browsing() as browser:
            await logged_in(browser)
            fields = {"edit": "set", "field": "n.deep", "value": "1", "where": "error like 'V%'", **UNTIL}
            done = await browser.submit("groups/billing/redrive", fields)
            assert b"<dt>Redriven</dt><dd>1</dd>" in done.body, "a field that is no object is replaced by one"
            discarded = await browser.submit("groups/billing/dead/discard", {})
            assert discarded.status == 422, "all dead letters only if the form says so"

    asyncio.run(scenario())
