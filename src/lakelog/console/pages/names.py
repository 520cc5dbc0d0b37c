"""The names of all pages, topics and groups, for the palette and for readers without JavaScript."""

from __future__ import annotations

from lakelog.console.page import Page, Values, View


async def _show(view: View) -> Values:
    found = await view.log.inventory()
    return {"topics": found.topics, "groups": found.groups}


PAGE = Page(name="names", path="names", title="All names", show=_show)
