"""Audit records: who changed what, and which calls were refused."""

from __future__ import annotations

from datetime import timedelta

from lakelog.console.page import Form, Page, Values, View
from lakelog.model.times import parse_time

SHOWN = 100
_FILTERS = ("operation", "group", "topic", "actor")


async def _show(view: View) -> Values:
    form = Form(view.query)
    chosen = {name: form.text(name) for name in _FILTERS}
    until = parse_time("until", text) if (text := form.text("until")) else None
    records = await view.log.audit.list(
        operation=chosen["operation"] or None,
        group=chosen["group"] or None,
        topic=chosen["topic"] or None,
        actor=chosen["actor"] or None,
        until=until,
        limit=SHOWN,
    )
    # `until` is exclusive: a record of the same millisecond is shown again rather than left out.
    older = (records[-1].at + timedelta(milliseconds=1)).isoformat() if len(records) == SHOWN else ""
    return {"records": records, "chosen": chosen, "older": {**chosen, "until": older} if older else None}


PAGE = Page(name="audit", path="audit", title="Audit", show=_show, menu="Audit", key="a", right="manage")
