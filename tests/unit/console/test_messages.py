"""The messages of a topic: where they begin, how far a search got, and what the viewer may see of them."""

from __future__ import annotations

import asyncio
import io
import json
import re
from collections.abc import Iterator
from html import unescape
from itertools import count

import pyarrow.parquet as pq
import pytest

import lakelog
from lakelog.client._async.topic import AsyncTopic
from lakelog.console import search as module
from lakelog.console.message_rows import SHORT, Row, row_of
from lakelog.console.search import Search, Wanted, search
from lakelog.model.filter import parse
from lakelog.model.masks import Masks
from lakelog.model.partitioner import partition_of
from lakelog.model.token import Right
from tests.unit.console.browser import Browser, browsing, logged_in


async def _filled(log: lakelog.AsyncLakelog, partitions: int = 2, each: int = 30) -> AsyncTopic[object]:
    topic = log.topic("orders")
    await topic.create(partitions)
    for partition in range(partitions):
        values = [lakelog.Outgoing({"n": n}, partition=partition, key=f"k{n % 10}") for n in range(each)]
        await topic.publish_many(values)
    return topic


async def _found(topic: AsyncTopic[object], wanted: Wanted, begin: Search | None = None, **more: object) -> Search:
    return await search(topic, await topic.describe(), wanted, begin or Search(), **more)  # type: ignore[arg-type]


def _ticking() -> Iterator[float]:
    return (0.4 * n for n in count())


async def test_a_filter_looks_at_all_partitions_and_says_so() -> None:
    async with lakelog.connect_async("memory://") as log:
        topic = await _filled(log)
        found = await _found(topic, Wanted(filter=parse("value.n >= 28")))
        assert [(row.partition, row.offset) for row in found.rows] == [(0, 28), (0, 29), (1, 28), (1, 29)]
        assert (found.scanned, found.total, found.found, found.place) == (60, 60, 4, None)
        one = await _found(topic, Wanted(filter=parse("value.n >= 28"), partition=1))
        assert (len(one.rows), one.scanned) == (2, 30)


async def test_a_search_goes_on_behind_what_retention_removed_during_it() -> None:
    async with lakelog.connect_async("memory://") as log:
        topic = await _filled(log)
        info = await topic.describe()
        await topic.purge()
        await topic.publish({"n": 30}, partition=1)
        found = await search(topic, info, Wanted(filter=parse("value.n >= 28")), Search())
        assert (found.rows, found.place) == ([], None)


async def test_a_key_is_in_one_partition() -> None:
    async with lakelog.connect_async("memory://") as log:
        topic = log.topic("orders")
        await topic.create(4)
        await topic.publish_many([lakelog.Outgoing({"n": n}, key=f"k{n % 10}") for n in range(100)])
        found = await _found(topic, Wanted(key=b"k3"))
        assert [row.key for row in found.rows] == [b"k3"] * 10
        assert {row.partition for row in found.rows} == {partition_of(b"k3", 4)}
        both = await _found(topic, Wanted(key=b"k3", filter=parse("value.n > 50")))
        assert len(both.rows) == 5
        assert (await _found(topic, Wanted(key=b"nobody"))).rows == []


async def test_a_search_stops_at_its_budget_and_continues_without_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAGE", 7)
    async with lakelog.connect_async("memory://") as log:
        topic = await _filled(log)
        wanted = Wanted(filter=parse("value.n = 3 or value.n = 29"))
        at, places, rows = Search(), [], []
        while True:
            ticks = _ticking()
            at = await _found(topic, wanted, at, clock=lambda: next(ticks))  # noqa: B023
            rows += at.rows
            assert at.total == 60
            if at.place is None:
                break
            places.append(at.place)
        assert [(row.partition, row.offset) for row in rows] == [(0, 3), (0, 29), (1, 3), (1, 29)]
        assert (at.scanned, at.found) == (60, 4) and len(places) > 5
        assert places == sorted(places)


async def test_a_search_stops_when_a_page_is_full() -> None:
    async with lakelog.connect_async("memory://") as log:
        topic = await _filled(log)
        first = await _found(topic, Wanted(filter=parse("value.n < 20")), most=15)
        assert (len(first.rows), first.place, first.scanned, first.left) == (15, (0, 15), 15, 45)
        rest = await _found(topic, Wanted(filter=parse("value.n < 20")), first, most=100)
        assert (len(rest.rows), rest.found, rest.place) == (25, 40, None)
        keyed = await _found(topic, Wanted(key=b"k1", partition=0), most=2)
        assert [row.offset for row in keyed.rows] == [1, 11] and keyed.place == (0, 12)


async def test_a_search_begins_at_a_time() -> None:
    async with lakelog.connect_async("memory://") as log:
        topic = await _filled(log, each=3)
        late = (await topic.fetch(0, offset=2)).messages[0].appended_at
        assert (await _found(topic, Wanted(filter=parse("value.n >= 0"), time=late))).scanned <= 6
        future = late.replace(year=late.year + 1)
        assert (await _found(topic, Wanted(filter=parse("value.n >= 0"), time=future))).rows == []


async def test_values_in_a_table_and_on_a_page_and_in_a_file() -> None:
    async with lakelog.connect_async("memory://") as log:
        topic = log.topic("orders")
        await topic.create(1)
        await topic.publish({"a": "x" * 500, "b": [1]}, key="k", headers={"h": "v"})
        await topic.publish(b"\xff\xfe")
        await topic.publish(None)
        json_row, bytes_row, none_row = (row_of(each, Masks()) for each in (await topic.fetch(0)).messages)
        assert len(json_row.short) == SHORT + 1 and json_row.long.splitlines()[0] == "{"
        assert json.loads(json_row.line())["value"]["b"] == [1]
        assert (bytes_row.short, "value_base64" in json.loads(bytes_row.line())) == ("(2 bytes)", True)
        assert json.loads(none_row.line()).get("value") is None
        assert isinstance(none_row, Row) and json.loads(json_row.line())["id"] == "1-0-0"


def _texts(page: bytes) -> str:
    return unescape(re.sub(r"<[^>]+>", " ", page.decode()))


async def _get(browser: Browser, path: str, status: int = 200) -> str:
    reply = await browser.get(path)
    assert reply.status == status, reply.body
    return reply.body.decode()


def test_the_newest_an_offset_older_and_newer_messages_and_a_link() -> None:
    async def scenario() -> None:
        async with browsing() as browser:
            await logged_in(browser)
            newest = await _get(browser, "topics/orders/messages")
            assert newest.count("m/1-0-") == 12 and "data-live" in newest
            page = await _get(browser, "topics/orders/messages?offset=4")
            assert page.count("m/1-0-") == 8 and "data-live" not in page
            assert 'href="../../topics/orders/messages?partition=0&amp;offset=0">Older' in page
            assert "offset=4&limit=8" in unescape(page) and "lakelog fetch orders --partition 0 --offset 4" in page
            assert 'class="notice warn" role="alert"' in await _get(browser, "topics/orders/messages?offset=99")
            assert "There is no message here" in await _get(browser, "topics/orders/messages?time=2100-01-01T00:00")
            assert await _get(browser, "topics/orders/messages?partition=7", 422)
            assert await _get(browser, "topics/orders/messages?where=value.n+%3D", 422)
            assert await _get(browser, "topics/orders/messages?at=x&key=k", 422)
            elsewhere = (partition_of(b"k", 4) + 1) % 4
            assert await _get(browser, f"topics/orders/messages?at={elsewhere}-0&key=k", 422)

    asyncio.run(scenario())


def test_a_search_shows_its_budget_and_a_download_has_the_same_messages() -> None:
    async def scenario() -> None:
        async with browsing() as browser:
            await logged_in(browser)
            page = await _get(browser, "topics/orders/messages?where=value.n+%3D+2")
            assert "12 of 12 messages scanned, 3 found" in " ".join(_texts(page.encode()).split())
            (link,) = re.findall(r'href="\.\./\.\./(topics/orders/messages\.jsonl\?[^"]+)"', page)
            file = await browser.get(unescape(link))
            assert (file.status, file.headers["content-type"]) == (200, "application/x-ndjson")
            assert file.headers["content-disposition"] == 'attachment; filename="orders.jsonl"'
            lines = [json.loads(line) for line in file.body.splitlines()]
            assert [line["value"] for line in lines] == [{"n": 2}] * 3
            file = await browser.get(unescape(link).replace(".jsonl", ".parquet"))
            assert file.headers["content-disposition"] == 'attachment; filename="orders.parquet"'
            found = pq.read_table(io.BytesIO(file.body)).to_pylist()
            assert [(row["id"], json.loads(row["value"])) for row in found] == [(x["id"], x["value"]) for x in lines]
            assert (found[0]["key"], found[0]["headers"]) == (None, [])
            empty = await browser.get("topics/orders/messages.parquet?where=value.n+%3D+99")
            assert pq.read_table(io.BytesIO(empty.body)).num_rows == 0

    asyncio.run(scenario())


def test_a_viewer_who_may_only_inspect_sees_no_message() -> None:
    async def scenario() -> None:
        async with browsing() as browser:
            await logged_in(browser, Right.INSPECT)
            page = await _get(browser, "topics/orders/messages?where=value.n+%3D+2")
            assert "no right to read" in page and "m/1-0-" not in page and "offset" in page
            assert (await browser.get("topics/orders/messages.jsonl")).status == 403
            story = await _get(browser, "m/1-0-1?topic=orders")
            assert "Hidden: the token has no right to read." in story and "no total" not in story
            assert '"n"' not in unescape(story)
            dead = await _get(browser, "groups/billing/dead")
            assert "ValueError: no total" not in dead and "Hidden" in dead
            preview = await _get(browser, "groups/billing/redrive")
            assert "ValueError: no total" not in preview and "(no value)" in preview

    asyncio.run(scenario())


def test_the_page_of_a_message_tells_its_story_and_shows_its_content() -> None:
    async def scenario() -> None:
        async with browsing() as browser:
            await logged_in(browser)
            for path in ("m/1-0-1", "m/1-0-1?topic=orders"):
                page = await _get(browser, path)
                text = " ".join(_texts(page.encode()).split())
                assert "Leased by w-2." in text and "ValueError: no total 17" in text and '"n": 0' in text
                assert 'class="event died"' in page and "groups/billing/dead?cluster=" in page
            assert "Not considered yet" in await _get(browser, "m/1-0-9")
            assert await _get(browser, "m/77-0-9", 404)
            assert await _get(browser, "m/nonsense", 422)

    asyncio.run(scenario())
