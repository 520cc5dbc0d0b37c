"""The servers: readiness, warnings, and the figures that each reports about itself."""

from __future__ import annotations

from lakelog.console.figures import Figure, figures_of
from lakelog.console.page import Page, Values, View
from lakelog.console.servers import ServerReport


async def _show(view: View) -> Values:
    reports = await view.servers.reports()
    rows: list[tuple[ServerReport, list[Figure]]] = [(each, figures_of(each.metrics)) for each in reports]
    return {"reports": rows, "cells_unreachable": any(each.cells_unreachable for each in reports)}


PAGE = Page(name="servers", path="servers", title="Servers", show=_show, menu="Servers", key="s")
