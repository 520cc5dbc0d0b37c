"""One group: why its messages wait, what helps, its partitions, members, leases and settings."""

from __future__ import annotations

import asyncio

from lakelog.console.page import Action, Form, Page, Values, View
from lakelog.console.remedies import button_of
from lakelog.console.timeline import MAX_MARKS, SPANS, GroupTimeline, span_of, timeline_of
from lakelog.errors import InvalidRequest
from lakelog.model.group import Order
from lakelog.model.stuck import StuckCode

SHOWN = 100
"""How many partitions and leases a page shows. The command line shows all."""


async def _show(view: View) -> Values:
    span = span_of(view.query.get("span", ""))
    group, (timeline, refusal) = await asyncio.gather(
        view.log.group(view.path["group"]).describe(), _timeline(view, span)
    )
    leases = sorted((lease for each in group.progress for lease in each.leases), key=lambda lease: lease.granted_at)
    progress = sorted(group.progress, key=lambda each: (-each.lag, each.topic, each.partition))
    stuck = [each for each in group.stuck if each.code is not StuckCode.NOTHING_WRONG]
    return {
        "group": group,
        "stuck": [(each, [(remedy, button_of(group.name, remedy)) for remedy in each.remedies]) for each in stuck],
        "progress": progress[:SHOWN],
        "leases": leases[:SHOWN],
        "topics": sorted({each.topic for each in group.progress}),
        "oldest_at": min((each.oldest_at for each in progress if each.oldest_at), default=None),
        "timeline": timeline,
        "refusal": refusal,
        "span": span,
        "spans": list(SPANS),
    }


async def _timeline(view: View, span: str) -> tuple[GroupTimeline | None, str]:
    """Return the timeline, or None and why there is none."""
    name, since = view.path["group"], view.now - SPANS[span]
    try:
        history, marks = await asyncio.gather(
            view.log.group(name).history(since=since), view.log.marks.list(group=name, since=since, limit=MAX_MARKS)
        )
    except InvalidRequest as error:
        return None, error.detail  # The group reads more topics than a history can sum.
    if not history.points:
        return None, "There is no sample of this time. Servers take one a minute."
    return timeline_of(history, marks), ""


def _page_of(view: View) -> str:
    return f"groups/{view.path['group']}"


async def _pause(view: View, form: Form) -> str:
    await view.log.group(view.path["group"]).pause(form.text("topic") or None)
    return _page_of(view)


async def _resume(view: View, form: Form) -> str:
    await view.log.group(view.path["group"]).resume(form.text("topic") or None)
    return _page_of(view)


async def _skip(view: View, form: Form) -> str:
    partition, offset = form.number("partition"), form.number("offset")
    if partition is None or offset is None:
        raise InvalidRequest("A skip needs a partition and an offset.")
    await view.log.topic(form.required("topic")).skip(view.path["group"], partition=partition, offset=offset)
    return _page_of(view)


async def _alter(view: View, form: Form) -> str:
    group = view.log.group(view.path["group"])
    order = form.text("order")
    await group.alter(
        window=form.number("window"),
        order=Order(order) if order in set(Order) else None,
        filter=form.fields.get("filter"),
        topic=form.text("topic") or None,
    )
    return _page_of(view)


PAGE = Page(name="group", path="groups/{group}", title="Group {group}", show=_show)
ACTIONS = (
    Action(name="pause", path="groups/{group}/pause", run=_pause, done="The group is paused."),
    Action(name="resume", path="groups/{group}/resume", run=_resume, done="The group continues."),
    Action(name="skip", path="groups/{group}/skip", run=_skip, done="The messages were skipped."),
    Action(name="alter", path="groups/{group}/alter", run=_alter, done="The settings were changed."),
)
