"""The messages of a topic: by offset, by time, the newest, by key and by filter, with a visible budget."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

from lakelog.client._async.topic import AsyncTopic
from lakelog.client.reading.masking import masks_of
from lakelog.console.message_rows import Row, lines_of, parquet_of, rows_of
from lakelog.console.page import Download, File, Form, Page, Values, View
from lakelog.console.search import Search, Wanted, search
from lakelog.console.times import time_of
from lakelog.errors import InvalidRequest, OffsetOutOfRange
from lakelog.model.filter import parse
from lakelog.model.topic_info import TopicInfo

SHOWN = 50
DOWNLOADED = 5000
"""The most messages of a download."""
_NO_LINKS = dict.fromkeys(("link", "jsonl", "parquet", "older", "newer", "on"), "")
_FIELDS = ("partition", "from", "offset", "time", "key", "where")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The parameters of the URL."""

    partition: int | None
    offset: int | None
    time: datetime | None
    oldest: bool
    wanted: Wanted
    begin: Search

    @property
    def is_search(self) -> bool:
        """Whether to look for messages by key or filter."""
        return self.wanted.key is not None or self.wanted.filter is not None

    @property
    def is_newest(self) -> bool:
        """Whether to show the newest messages."""
        return not (self.is_search or self.oldest) and self.offset is None and self.time is None


def asked_of(form: Form, info: TopicInfo) -> Asked:
    """Return what the parameters of the URL ask for. Raise `InvalidRequest` if they make no sense."""
    partition = form.number("partition")
    if partition is not None and partition >= info.partitions:
        raise InvalidRequest(f"Topic '{info.name}' has partitions 0 to {info.partitions - 1}, not {partition}.")
    key, where = form.fields.get("key", ""), form.text("where")
    time = time_of(form.text("time")) if form.text("time") else None
    return Asked(
        partition=partition,
        offset=form.number("offset"),
        time=time,
        oldest=form.text("from") == "oldest",
        wanted=Wanted(
            key=key.encode() if key else None, filter=parse(where) if where else None, partition=partition, time=time
        ),
        begin=Search(
            place=_place(form.text("at"), info), scanned=form.number("scanned") or 0, found=form.number("found") or 0
        ),
    )


def _place(text: str, info: TopicInfo) -> tuple[int, int] | None:
    partition, _, offset = text.partition("-")
    if not text:
        return None
    place = Form({"at": partition}).number("at"), Form({"at": offset}).number("at")
    if place[0] is None or place[1] is None or place[0] >= info.partitions:
        raise InvalidRequest(f"'{text[:40]}' is not a place of topic '{info.name}'.")
    return place[0], place[1]


async def read(topic: AsyncTopic[object], info: TopicInfo, asked: Asked, most: int) -> tuple[list[Row], Search | None]:
    """Return the messages that are asked for, and how far a search got."""
    if asked.is_search:
        found = await search(topic, info, asked.wanted, asked.begin, most=most)
        return found.rows, found
    partition = asked.partition or 0
    if asked.time is not None:
        page = await topic.fetch(partition, time=asked.time, limit=most)
    elif asked.offset is not None:
        page = await topic.fetch(partition, offset=asked.offset, limit=most)
    elif asked.oldest:
        page = await topic.fetch(partition, limit=most)
    else:
        page = await topic.fetch(partition, last=most, limit=most)
    masks = masks_of(info)
    return await asyncio.to_thread(rows_of, page.messages, masks), None


async def _show(view: View) -> Values:
    topic = view.log.topic(view.path["topic"])
    info = await topic.describe()
    form = Form(view.query)
    asked = asked_of(form, info)
    shown: list[Row] = []
    found: Search | None = None
    refusal = ""
    if view.viewer.may("read"):
        try:
            shown, found = await read(topic, info, asked, SHOWN)
        except OffsetOutOfRange as error:
            refusal = error.detail
    fields = {name: form.fields.get(name, "") for name in _FIELDS}
    path = f"topics/{info.name}/messages"
    return {
        "topic": info,
        "asked": asked,
        "fields": fields,
        "rows": shown,
        "found": found,
        "refusal": refusal,
        "links": {**_NO_LINKS, **_links(path, info, asked, shown, found, fields)},
        "copies": copies_of(info.name, shown[0].partition, shown[0].offset, len(shown)) if shown else [],
    }


def _links(
    path: str, info: TopicInfo, asked: Asked, shown: Sequence[Row], found: Search | None, fields: dict[str, str]
) -> dict[str, str]:
    """Return the links to the next messages, to the previous ones, to these ones for good, and to their download."""
    given = {name: text for name, text in fields.items() if text}
    if found is not None:
        begun = {} if asked.begin.place is None else _cursor(asked.begin)
        links = _same(path, given, begun)
        return links if found.place is None else {**links, "on": _url(path, given, _cursor(found))}
    if not shown:
        return {}
    partition, first, last = shown[0].partition, shown[0].offset, shown[-1].offset
    end = next(each for each in info.partition_list if each.partition == partition)
    here = {"partition": str(partition), "offset": str(first)}
    links = _same(path, here)
    if first > end.log_start:
        links["older"] = _url(path, {**here, "offset": str(max(end.log_start, first - SHOWN))})
    if last + 1 < end.high_watermark:
        links["newer"] = _url(path, {**here, "offset": str(last + 1)})
    return links


def _same(path: str, *parameters: dict[str, str]) -> dict[str, str]:
    """Return the links to these messages for good: to the page and to its downloads."""
    return {
        "link": _url(path, *parameters),
        "jsonl": _url(f"{path}.jsonl", *parameters),
        "parquet": _url(f"{path}.parquet", *parameters),
    }


def _cursor(at: Search) -> dict[str, str]:
    assert at.place is not None
    return {"at": f"{at.place[0]}-{at.place[1]}", "scanned": str(at.scanned), "found": str(at.found)}


def _url(path: str, *parameters: dict[str, str]) -> str:
    return f"{path}?{urlencode({name: text for some in parameters for name, text in some.items()})}"


def copies_of(topic: str, partition: int, offset: int, count: int) -> list[tuple[str, str]]:
    """Return commands that fetch messages: by `curl`, by Python and by the command line."""
    name = shlex.quote(topic)
    query = f"offset={offset}&limit={count}"
    return [
        (
            "curl",
            'curl -H "Authorization: Bearer $LAKELOG_TOKEN" '
            f'"$LAKELOG_URL/v1/topics/{topic}/partitions/{partition}/messages?{query}"',
        ),
        ("Python", f'lakelog.connect().topic("{topic}").fetch({partition}, offset={offset}, limit={count})'),
        ("CLI", f"lakelog fetch {name} --partition {partition} --offset {offset} --limit {count}"),
    ]


def _download(suffix: str, media: str, written: Callable[[Sequence[Row]], bytes]) -> Download:
    async def run(view: View) -> File:
        topic = view.log.topic(view.path["topic"])
        info = await topic.describe()
        shown, _ = await read(topic, info, asked_of(Form(view.query), info), DOWNLOADED)
        return File(name=f"{info.name}.{suffix}", media=media, content=await asyncio.to_thread(written, shown))

    return Download(name=f"messages as {suffix}", path=f"topics/{{topic}}/messages.{suffix}", run=run)


PAGE = Page(name="messages", path="topics/{topic}/messages", title="Messages of {topic}", show=_show)
DOWNLOADS = (
    _download("jsonl", "application/x-ndjson", lines_of),
    _download("parquet", "application/vnd.apache.parquet", parquet_of),
)
