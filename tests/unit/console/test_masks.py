"""Masks: no page, file or stream of the console shows a masked field, and no edit stores the mask as data."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from html import unescape

import pyarrow.parquet as pq
import pytest

from lakelog.console.page import Form
from lakelog.console.pages import ACTIONS, DOWNLOADS, PAGES, STREAMS
from lakelog.console.redriving import edit_of
from lakelog.errors import InvalidRequest
from lakelog.model.masks import MASK
from tests.kit.waiting import eventually_async
from tests.unit.console.browser import Browser, browsing, logged_in
from tests.unit.console.examples import FORMS, PATHS

SECRET = "4111-1111"
MASKS = ["key", "value.card.number", "headers.Auth", "correlation_id", "idempotency_key", "error"]
HERE = {"host": "localhost"}
MESSAGES = "topics/orders/messages"
DEAD = "groups/billing/dead"
PLACES: Mapping[str, str] = {
    **PATHS,
    "messages by filter": f"{MESSAGES}?where=value.n+%3D+1",
    "messages by offset": f"{MESSAGES}?offset=12",
    "message of a topic": "m/1-0-12?topic=orders",
    "message found by its id": "m/1-0-12",
    "text": "m/1-0-13?topic=orders",
    "redrive as it is": "groups/billing/redrive",
    "redrive without a field": "groups/billing/redrive?edit=remove&field=n",
    "redrive with another value": "groups/billing/redrive?edit=replace&value=1",
    "dead letters by filter": f"{DEAD}?where=failures+%3D+1",
    **{each.path: each.path.format(topic="orders") for each in DOWNLOADS},
    "search": f"{MESSAGES}.jsonl?where=value.n+%3D+1",
}
"""The paths of pages and files, by their names."""
SHOWN = {
    *("messages", "messages by filter", "messages by offset", "message of a topic", "message found by its id", "text"),
    *("dead_letters", "dead letters by filter", "a cluster"),
    *("redrive", "redrive as it is", "redrive without a field", "redrive with another value"),
    *("topics/{topic}/messages.jsonl", "topics/{topic}/messages.parquet", "search", "topics/{topic}/tail"),
}
"""Those that show the secret if the topic has no masks."""


@asynccontextmanager
async def secretive(masks: list[str]) -> AsyncIterator[Browser]:
    """Yield a browser at a server with a dead letter and a text that have a secret, at the offsets 12 and 13."""
    async with browsing() as browser:
        world = browser.world
        changed = await world.call("PATCH", "/v1/topics/orders", json={"masks": masks}, headers=HERE)
        assert changed.status == 200 and changed.json["masks"] == masks, changed.body
        value = {"n": 1, "card": {"number": SECRET, "kind": "visible"}}
        message = {
            "key": SECRET,
            "value": value,
            "headers": {"Auth": SECRET, "source": "shop"},
            "correlation_id": SECRET,
            "idempotency_key": SECRET,
            "partition": 0,
        }
        text = {"value": SECRET, "partition": 0}
        assert (await world.publish("orders", message, text, headers=HERE)).status == 200
        for owner in ("w-4", "w-5"):
            consume = {"topic": "orders", "group": "billing", "owner": owner, "request_id": "a", "max_messages": 100}
            for lease in (await world.call("POST", "/v1/consume", json=consume, headers=HERE)).json["leases"]:
                offsets = [message["offset"] for message in lease["messages"]]
                answer = {
                    "verb": "fail",
                    "partition": 0,
                    "token": lease["token"],
                    "offsets": offsets,
                    "reason": f"{SECRET} is refused",
                    "traceback": f'  File "/srv/shop/billing.py", line 3, in charge\nValueError: {SECRET}\n',
                }
                path = "/v1/topics/orders/groups/billing/answers"
                done = await world.call("POST", path, json={"owner": owner, "answers": [answer]}, headers=HERE)
                assert done.status == 200, done.body
        yield await logged_in(browser)


async def _seen(browser: Browser) -> dict[str, str]:
    """Return what each page, file and stream shows."""
    seen: dict[str, str] = {}
    for name, path in PLACES.items():
        reply = await browser.get(path)
        assert reply.status == 200, (name, reply.body)
        is_parquet = path.endswith(".parquet")
        seen[name] = (
            str(pq.read_table(io.BytesIO(reply.body)).to_pylist()) if is_parquet else unescape(reply.body.decode())
        )
    clusters = re.findall(r"dead\?cluster=([0-9a-f]{12})", seen["dead_letters"])
    pages = [await browser.get(f"{DEAD}?cluster={cluster}") for cluster in dict.fromkeys(clusters)]
    seen["a cluster"] = "".join(page.body.decode() for page in pages)
    (stream,) = STREAMS
    seen[stream.path] = await _followed(browser)
    return seen


async def _followed(browser: Browser) -> str:
    """Return the events of new messages, from the first message on."""
    gone, sent = asyncio.Event(), list[dict[str, bytes]]()
    headers = {"host": browser.host, "cookie": "; ".join(f"{name}={text}" for name, text in browser.cookies.items())}
    call = browser.world.call(
        "GET", "/console/topics/orders/tail", query="after=1:0", headers=headers, token=None, gone=gone, sent=sent
    )
    task = asyncio.create_task(call)
    await eventually_async(lambda: any(b"0:13" in each.get("body", b"") for each in sent))
    gone.set()
    await task
    return b"".join(each.get("body", b"") for each in sent).decode()


def _has_secret(text: str) -> bool:
    encoded = base64.b64encode(SECRET.encode()).decode()
    return SECRET in text or encoded in text


async def test_no_page_shows_a_masked_field() -> None:
    assert {page.name for page in PAGES} | {each.path for each in DOWNLOADS} <= {*PLACES}
    async with secretive(MASKS) as browser:
        seen = await _seen(browser)
        assert [name for name, text in seen.items() if _has_secret(text)] == []
        assert {name for name, text in seen.items() if MASK in text} >= SHOWN
        story = seen["message of a topic"]
        assert "visible" in story and "shop" in story and "charge" in seen["dead_letters"]
        lines = [json.loads(line) for line in seen["topics/{topic}/messages.jsonl"].splitlines()]
        masked, text = (line for line in lines if line["offset"] in (12, 13))
        assert (masked["key"], masked["value"]) == (MASK, {"n": 1, "card": {"number": MASK, "kind": "visible"}})
        assert (masked["headers"], masked["correlation_id"]) == ({"Auth": MASK, "source": "shop"}, MASK)
        assert text["value"] == MASK and "value_base64" not in text
        assert "<dt>Masks</dt><dd>key, value.card.number" in seen["topic"]


async def test_without_masks_these_pages_show_it() -> None:
    async with secretive([]) as browser:
        assert {name for name, text in (await _seen(browser)).items() if _has_secret(text)} == SHOWN


async def test_no_action_shows_a_masked_field_or_stores_the_mask() -> None:
    async with secretive(MASKS) as browser:
        path, fields = FORMS["redrive"]
        edit = {"edit": "set", "field": "n", "value": "2", "until": fields["until"]}
        reply = await browser.submit(path, {**edit, "where": "offset = 12"})
        assert b"<dt>Redriven</dt><dd>1</dd>" in reply.body and not _has_secret(reply.body.decode())
        (redriven,) = (await browser.world.fetch("orders", 0, "offset=14", headers=HERE)).json["messages"]
        assert redriven["value"] == {"n": 2, "card": {"number": SECRET, "kind": "visible"}}
        assert (redriven["key"], redriven["headers"]["Auth"]) == (SECRET, SECRET)
        refused = await browser.submit(path, {**edit, "edit": "replace", "value": json.dumps(MASK, ensure_ascii=False)})
        assert refused.status == 422 and b"the sign of a masked field" in refused.body
        for action in ACTIONS:
            reply = await browser.submit(*FORMS[action.name])
            assert reply.status < 500 and not _has_secret(reply.body.decode()), action.name


@pytest.mark.parametrize("kind", ["set", "replace"])
def test_an_edit_with_a_mask_is_refused(kind: str) -> None:
    with pytest.raises(InvalidRequest, match="the sign of a masked field"):
        edit_of(Form({"edit": kind, "field": "card", "value": f'{{"number": "{MASK}"}}'}))
