"""All topics with their settings, without figures, so that the page is quick with thousands of topics."""

from __future__ import annotations

from collections.abc import Callable

from lakelog.console.page import Page, Values, View
from lakelog.console.tables import Sorting, sort_and_filter
from lakelog.model.topic_info import TopicInfo

SORTS: dict[str, Callable[[TopicInfo], object]] = {
    "name": lambda topic: topic.name,
    "partitions": lambda topic: -topic.partitions,
    "created": lambda topic: -topic.created_at.timestamp(),
}


async def _show(view: View) -> Values:
    topics = await view.log.topics()
    sorting = Sorting.of(view.query, SORTS)
    found = sort_and_filter(topics, sorting, SORTS, lambda topic: topic.name)
    return {"topics": found, "total": len(topics), "sorting": sorting}


PAGE = Page(name="topics", path="topics", title="Topics", show=_show, menu="Topics", key="t")
