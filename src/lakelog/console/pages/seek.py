"""Moves a group. The page shows what a seek would change, and its form makes the change."""

from __future__ import annotations

from typing import Any

from lakelog.console.page import Action, Form, Page, Values, View
from lakelog.console.times import time_of
from lakelog.errors import InvalidRequest

_FIELDS = ("topic", "partition", "position", "time", "offset")


def seek_target(form: Form) -> dict[str, Any]:
    """Return the target of a seek as arguments of the client: an offset, a time or a position."""
    if (offset := form.number("offset")) is not None:
        return {"offset": offset}
    if text := form.text("time"):
        return {"to": time_of(text)}
    position = form.text("position")
    if position in ("earliest", "latest"):
        return {"to": position}
    raise InvalidRequest("Say where the group continues: the oldest message, the end, a time or an offset.")


async def _show(view: View) -> Values:
    form = Form(view.query)
    topic, name = form.required("topic"), view.path["group"]
    target = seek_target(form)
    sought = await view.log.topic(topic).seek(name, partition=form.number("partition"), dry_run=True, **target)
    return {
        "group": name,
        "topic": topic,
        "sought": sought,
        "again": sum(max(0, each.before - each.after) for each in sought),
        "left_out": sum(max(0, each.after - each.before) for each in sought),
        "fields": {field: form.text(field) for field in _FIELDS if form.text(field)},
    }


async def _seek(view: View, form: Form) -> str:
    topic = view.log.topic(form.required("topic"))
    await topic.seek(view.path["group"], partition=form.number("partition"), **seek_target(form))
    return f"groups/{view.path['group']}"


PAGE = Page(name="seek", path="groups/{group}/seek", title="Move group {group}", show=_show)
ACTIONS = (Action(name="seek", path="groups/{group}/seek", run=_seek, done="The group was moved."),)
