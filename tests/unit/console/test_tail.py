"""New messages of a topic: which are shown, which are only counted, and where a viewer continues."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import lakelog
from lakelog.client._async.topic import AsyncTopic
from lakelog.client.reading.selecting import Selection
from lakelog.console import app, tail
from lakelog.console.tail import Look, Place, look
from lakelog.model.filter import parse
from lakelog.model.token import Right
from tests.kit.waiting import eventually_async
from tests.unit.console.browser import Browser, browsing, logged_in

ALL = Selection()


@asynccontextmanager
async def _topic(partitions: int = 2) -> AsyncIterator[AsyncTopic[object]]:
    async with lakelog.connect_async("memory://") as log:
        topic = log.topic("orders")
        await topic.create(partitions)
        yield topic


async def _publish(topic: AsyncTopic[object], partition: int, count: int) -> None:
    await topic.publish_many([lakelog.Outgoing({"n": n}, partition=partition) for n in range(count)])


def _positions(seen: Look) -> list[str]:
    return [row.position for row in seen.rows]


async def test_only_messages_after_the_first_look_are_shown() -> None:
    async with _topic() as topic:
        await _publish(topic, 0, 3)
        seen, place = await look(topic, None, ALL)
        assert seen == Look(rows=[], skipped=0, filtered=0)
        await _publish(topic, 0, 2)
        await _publish(topic, 1, 1)
        seen, place = await look(topic, place, ALL)
        assert (_positions(seen), seen.skipped) == (["0:3", "0:4", "1:0"], 0)
        assert (await look(topic, place, ALL))[0].rows == []


async def test_the_newest_messages_of_all_partitions_are_shown_and_the_others_counted() -> None:
    async with _topic() as topic:
        _, place = await look(topic, None, ALL)
        await _publish(topic, 0, 400)
        await _publish(topic, 1, 10)
        seen, _ = await look(topic, place, ALL)
        expected = [*(f"0:{offset}" for offset in range(360, 400)), *(f"1:{offset}" for offset in range(10))]
        assert (sorted(_positions(seen)), seen.skipped) == (sorted(expected), 360)


async def test_a_filter_examines_a_bounded_number_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "EXAMINED", 30)
    async with _topic() as topic:
        _, place = await look(topic, None, ALL)
        await _publish(topic, 0, 100)
        seen, _ = await look(topic, place, Selection(filter=parse("value.n >= 98 or value.n < 3")))
        assert (_positions(seen), seen.filtered, seen.skipped) == (["0:98", "0:99"], 28, 70)
        monkeypatch.setattr(tail, "SHOWN", 4)
        seen, _ = await look(topic, place, Selection(filter=parse("value.n >= 80")))
        assert (_positions(seen)[0], seen.filtered, seen.skipped) == ("0:96", 10, 86)


async def test_large_values_end_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "MAX_BYTES", 1)
    async with _topic() as topic:
        _, place = await look(topic, None, ALL)
        await _publish(topic, 0, 1)
        await _publish(topic, 1, 1)
        seen, _ = await look(topic, place, ALL)
        assert (len(seen.rows), seen.skipped) == (1, 1)


async def test_removed_messages_a_new_partition_and_a_new_topic() -> None:
    async with _topic() as topic:
        _, place = await look(topic, None, ALL)
        await _publish(topic, 0, 5)
        await topic.purge()
        await topic.alter(partitions=3)
        await _publish(topic, 2, 1)
        seen, place = await look(topic, place, ALL)
        assert (_positions(seen), seen.skipped) == (["2:0"], 5)
        await topic.delete()
        await topic.create(1)
        await _publish(topic, 0, 2)
        seen, _ = await look(topic, place, ALL)
        assert (_positions(seen), seen.skipped) == (["0:0", "0:1"], 0)


async def test_a_place_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(incarnation=3, ends={0: 7, 1: 0}, total=7)
    assert str(place) == "3:7.0"
    assert Place.parse("3:7.0") == place
    for text in ("", "3", "3:", "x:1", "3:1.x", "3:-1", "3:1.²", "3:" + "9" * 19):
        assert Place.parse(text) is None
    monkeypatch.setattr(tail, "MAX_PLACES", 1)
    async with _topic() as topic:
        _, end = await look(topic, None, ALL)
        short = Place.parse(str(end))
        assert short is not None and short.ends is None
        await _publish(topic, 1, 4)
        seen, _ = await look(topic, short, ALL)
        assert (seen.rows, seen.skipped) == ([], 4), "which of them are new is not known"


class _Listener:
    """A browser that listens to the events of `orders`."""

    def __init__(self, browser: Browser, query: str = "", headers: dict[str, str] | None = None) -> None:
        self.sent: list[dict[str, Any]] = []
        self.gone = asyncio.Event()
        cookies = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
        headers = {"host": browser.host, "cookie": cookies, **(headers or {})}
        path = "/console/topics/orders/tail"
        self.task = asyncio.create_task(
            browser.world.call("GET", path, query=query, headers=headers, token=None, gone=self.gone, sent=self.sent)
        )

    def events(self) -> list[tuple[str, Any]]:
        """The ids and the contents of the events so far."""
        text = b"".join(each.get("body", b"") for each in self.sent).decode()
        lines = [event.splitlines() for event in text.split("\n\n") if event.startswith("retry")]
        return [(number.removeprefix("id: "), json.loads(data.removeprefix("data: "))) for _, number, data in lines]

    async def heard(self, count: int) -> list[tuple[str, Any]]:
        """Return the first events, when they have arrived."""
        await eventually_async(lambda: len(self.events()) >= count or self.task.done())
        return self.events()

    async def leave(self) -> None:
        self.gone.set()
        await self.task


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(tail, "_REST", 0)


async def _send(browser: Browser, *values: object) -> None:
    await browser.world.publish("orders", *[{"value": value, "partition": 0} for value in values])


async def test_events_arrive_and_continue_after_the_last_one() -> None:
    async with browsing() as browser:
        await logged_in(browser)
        listener = _Listener(browser)
        ((first, begin),) = await listener.heard(1)
        assert begin == {"rows": [], "skipped": 0, "filtered": 0}
        await _send(browser, "<script>alert(1)</script>")
        event, seen = (await listener.heard(2))[1]
        assert [row["position"] for row in seen["rows"]] == ["0:12"]
        assert seen["rows"][0]["value"] == "<script>alert(1)</script>" and seen["rows"][0]["id"] == "1-0-12"
        assert dict(listener.sent[0]["headers"])[b"content-type"].startswith(b"text/event-stream")
        await listener.leave()
        await _send(browser, "missed")
        again = _Listener(browser, f"after={first}", {"last-event-id": event})
        assert [row["position"] for row in (await again.heard(1))[0][1]["rows"]] == ["0:13"]
        await again.leave()


async def test_a_stream_ends_when_the_server_stops_and_when_the_token_is_revoked() -> None:
    async with browsing() as browser:
        await logged_in(browser)
        listener = _Listener(browser)
        await listener.heard(1)
        made = _Listener(browser)
        await made.heard(1)
        await browser.submit("logout")
        async with asyncio.timeout(10):
            await listener.task
            await made.task
        await logged_in(browser)
        last = _Listener(browser)
        await last.heard(1)
        browser.world.drain.begin()
        async with asyncio.timeout(10):
            await last.task


async def test_refused_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    async with browsing() as browser:
        reply = await browser.call("GET", "/console/topics/orders/tail")
        assert (reply.status, reply.headers["location"]) == (303, "../../login?next=topics/orders/tail")
        await logged_in(browser, Right.INSPECT)
        assert (await browser.get("topics/orders/tail")).status == 403
        page = (await browser.get("topics/orders")).body
        assert b"no right to read messages" in page and b"data-tail" not in page
        await logged_in(browser)
        assert (await browser.get("topics/nothing/tail")).status == 404
        for path in ("topics/orders/tail?where=x+%3D", "topics/orders?where=x+%3D"):
            assert (await browser.get(path)).status == 422
        monkeypatch.setattr(app, "MAX_STREAMS", 1)
        listener = _Listener(browser)
        await listener.heard(1)
        assert (await browser.get("topics/orders/tail")).status == 429
        await listener.leave()
        listener = _Listener(browser)
        assert len(await listener.heard(1)) == 1, "a page that was closed gives its place back"
        await listener.leave()


async def test_the_page_names_the_stream_and_says_what_to_do_without_javascript() -> None:
    async with browsing() as browser:
        browser.prefix = "/a/b"
        await browser.log_in(await browser.world.make_token())
        page = (await browser.get("topics/orders?where=value.n+%3D+1")).body.decode()
        assert 'data-tail="../topics/orders/tail?where=value.n+%3D+1"' in page
        assert "<noscript>" in page and "lakelog tail orders -f" in page
