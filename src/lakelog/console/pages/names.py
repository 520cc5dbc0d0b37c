"""The names of all pages, topics and groups, for the palette and for readers without JavaScript."""

from __future__ import annotations

import asyncio

from lakelog.console.page import Page, Values, View


async def _show(view: View) -> Values:
    topics, groups = await asyncio.gather(view.log.topics(), view.log.groups())
    return {"topics": [each.name for each in topics], "groups": [each.name for each in groups]}


PAGE = Page(name="names", path="names", title="All names", show=_show)
