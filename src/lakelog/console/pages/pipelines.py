"""Runs of pipelines such as tiering, with their progress and outcome."""

from __future__ import annotations

from lakelog.console.page import Page, Values, View


async def _show(view: View) -> Values:
    return {"runs": await view.log.pipelines.list()}


PAGE = Page(name="pipelines", path="pipelines", title="Pipelines", show=_show, menu="Pipelines", key="p")
