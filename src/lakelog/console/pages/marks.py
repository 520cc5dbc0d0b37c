"""Marks on the timeline: deploys, and changes such as pauses and seeks."""

from __future__ import annotations

from lakelog.console.page import Action, Form, Page, Values, View

SHOWN = 200


async def _show(view: View) -> Values:
    form = Form(view.query)
    group, topic = form.text("group"), form.text("topic")
    marks = await view.log.marks.list(group=group or None, topic=topic or None, limit=SHOWN)
    return {"marks": marks, "group": group, "topic": topic}


async def _create(view: View, form: Form) -> str:
    await view.log.marks.create(
        form.required("text"), group=form.text("group") or None, topic=form.text("topic") or None
    )
    return "marks"


PAGE = Page(name="marks", path="marks", title="Marks", show=_show, menu="Marks", key="m")
ACTIONS = (Action(name="create_mark", path="marks", run=_create, done="The mark is set."),)
