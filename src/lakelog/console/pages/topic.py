"""One topic: its size, its partitions, the groups that read it, new messages, its settings and its schema."""

from __future__ import annotations

from urllib.parse import urlencode

from lakelog.client._async.topic import AsyncTopic
from lakelog.console.heat_map import heat_map
from lakelog.console.page import Action, Form, Page, Values, View
from lakelog.console.tail import STREAM as STREAM
from lakelog.errors import SchemaNotFound
from lakelog.model.filter import parse
from lakelog.model.schema import TopicSchema

SHOWN = 50
"""How many partitions the table shows. The command line shows all."""


async def _show(view: View) -> Values:
    topic = view.log.topic(view.path["topic"])
    where = view.query.get("where", "").strip()
    if where:
        parse(where)
    stats = await topic.stats(described=True)
    info = stats.described
    assert info is not None, "it was asked for"
    partitions = info.partition_list
    largest = sorted(partitions, key=lambda each: (-each.bytes, each.partition))
    return {
        "topic": info,
        "stats": stats,
        "groups": sorted(stats.groups, key=lambda each: (-each.lag, each.group)),
        "schema": await _schema(topic) if info.schema_version is not None else None,
        "bytes": sum(each.bytes for each in partitions),
        "appended_at": max((each.appended_at for each in partitions if each.appended_at), default=None),
        "partitions": largest[:SHOWN],
        "where": where,
        "tail": f"topics/{info.name}/tail?{urlencode({'where': where})}",
        "map": heat_map([each.bytes for each in partitions]) if len(partitions) > 1 else None,
    }


async def _schema(topic: AsyncTopic[object]) -> TopicSchema | None:
    try:
        return await topic.schema()
    except SchemaNotFound:
        return None  # It was removed since.


async def _pause(view: View, form: Form) -> str:
    await view.log.topic(view.path["topic"]).pause()
    return f"topics/{view.path['topic']}"


async def _resume(view: View, form: Form) -> str:
    await view.log.topic(view.path["topic"]).resume()
    return f"topics/{view.path['topic']}"


PAGE = Page(name="topic", path="topics/{topic}", title="Topic {topic}", show=_show)
ACTIONS = (
    Action(name="pause_topic", path="topics/{topic}/pause", run=_pause, done="All groups of the topic are paused."),
    Action(name="resume_topic", path="topics/{topic}/resume", run=_resume, done="All groups of the topic continue."),
)
