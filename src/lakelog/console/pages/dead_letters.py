"""The dead letters of a group by cause, and the redrive of a cluster or of those that a filter selects."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from msgspec.structs import replace

from lakelog.client._async.dead_letters import AsyncDeadLetters
from lakelog.client.reading.masking import TopicMasks
from lakelog.console.page import Action, Form, Page, Shown, Values, View
from lakelog.console.redriving import EDITS, PART, SAMPLES, Plan, Tally, edit_of, redrive_part, sample_of
from lakelog.errors import InvalidRequest
from lakelog.model.dead_letter_clusters import DeadLetterCluster, DeadLetterClusters
from lakelog.model.times import parse_time

SHOWN = 50
LOOKED_AT = 200
"""How many dead letters a preview edits. With a filter it reads a whole part, because nothing else counts matches."""
_CHOICE = ("topic", "cluster", "where")
_PLAN = ("edit", "field", "value", "rate", "force")


def _letters(view: View, form: Form) -> AsyncDeadLetters:
    """Return the chosen dead letters of the group."""
    letters = view.log.group(view.path["group"]).dead_letters(form.text("topic") or None)
    if form.text("cluster"):
        letters = letters.cluster(form.text("cluster"))
    return letters.where(form.text("where")) if form.text("where") else letters


async def _clusters(view: View, form: Form) -> tuple[TopicMasks, DeadLetterClusters, DeadLetterCluster | None]:
    """Return the masks of topics, the clusters as people see them or only the chosen one, and the chosen one."""
    group = view.path["group"]
    letters = view.log.group(group).dead_letters(form.text("topic") or None)
    if form.text("cluster"):
        letters = letters.cluster(form.text("cluster"))
    topics, found = await asyncio.gather(view.log.topics(group=group), letters.clusters())
    masks = TopicMasks(topics)
    shown = replace(found, clusters=tuple(map(masks.cluster, found.clusters)))
    return masks, shown, next((each for each in shown.clusters if each.fingerprint == form.text("cluster")), None)


def _fields(form: Form, names: tuple[str, ...]) -> dict[str, str]:
    return {name: form.text(name) for name in names}


async def _show(view: View) -> Values:
    form = Form(view.query)
    (masks, clusters, chosen), page = await asyncio.gather(
        _clusters(view, form), _letters(view, form).page(None, None, SHOWN)
    )
    return {
        "group": view.path["group"],
        "clusters": clusters,
        "chosen": chosen,
        "letters": await asyncio.to_thread(lambda: list(map(masks.letter, page.letters))),
        "has_more": page.next is not None,
        "fields": _fields(form, _CHOICE),
    }


async def _preview(view: View) -> Values:
    form = Form(view.query)
    edit = edit_of(form)
    letters = _letters(view, form)
    most = PART if form.text("where") else LOOKED_AT
    (masks, clusters, chosen), page = await asyncio.gather(_clusters(view, form), letters.page(None, None, most))
    samples = [sample_of(letter, edit, masks.of(letter.topic)) for letter in page.letters]
    counts = {
        "changed": sum(each.repair is not None for each in samples),
        "unchanged": sum(each.repair is None and not each.refusal for each in samples),
        "refused": sum(bool(each.refusal) for each in samples),
    }
    return {
        "group": view.path["group"],
        "chosen": chosen,
        "matching": _matching(form, clusters, chosen.count if chosen else None, len(page.letters), page.next is None),
        "samples": samples[:SAMPLES],
        "counts": counts,
        "looked_at": len(samples),
        "choice": _fields(form, _CHOICE),
        "plan": _fields(form, _PLAN),
        "edits": EDITS,
        "until": view.now.isoformat(),
    }


def _matching(
    form: Form, clusters: DeadLetterClusters, in_cluster: int | None, read: int, is_all: bool
) -> tuple[int, bool]:
    """Return how many dead letters the choice matches, and whether that is exact."""
    if is_all:
        return read, True
    if form.text("where"):
        return read, False
    return (clusters.examined, not clusters.has_more) if in_cluster is None else (in_cluster, True)


async def _redrive(view: View, form: Form) -> Shown:
    """Redrive the next part, and show how far it got, with a form for the next one."""
    rate = form.number("rate")
    if rate == 0:
        raise InvalidRequest("The rate must be at least 1 message per second.")
    plan = Plan(
        edit=edit_of(form),
        until=parse_time("until", form.required("until")),
        most=min(PART, rate or PART),
        force=form.text("force") == "yes",
    )
    done = Tally(
        redriven=form.number("redriven") or 0,
        refused=form.number("refused") or 0,
        reason=form.text("reason")[:500],
        after=form.text("after"),
        ids=tuple(form.text("ids").split()[:10]),
    )
    tally = await redrive_part(_letters(view, form), plan, done)
    carried: Mapping[str, str] = {
        **_fields(form, (*_CHOICE, *_PLAN, "until", "matching")),
        "redriven": str(tally.redriven),
        "refused": str(tally.refused),
        "reason": tally.reason,
        "after": tally.after,
        "ids": " ".join(tally.ids),
    }
    values = {
        "group": view.path["group"],
        "tally": tally,
        "matching": form.number("matching") or 0,
        "carried": {name: text for name, text in carried.items() if text},
        "choice": _fields(form, _CHOICE),
        "rate": rate,
    }
    return Shown(template="redriving", title=f"Redrive of {view.path['group']}", values=values)


async def _discard(view: View, form: Form) -> str:
    if not (form.text("cluster") or form.text("where") or form.text("all") == "yes"):
        raise InvalidRequest("Choose a cluster or a filter of the dead letters to discard.")
    await _letters(view, form).discard()
    return f"groups/{view.path['group']}/dead"


PAGE = Page(name="dead_letters", path="groups/{group}/dead", title="Dead letters of {group}", show=_show)
REDRIVE = Page(name="redrive", path="groups/{group}/redrive", title="Redrive dead letters of {group}", show=_preview)
ACTIONS = (
    Action(name="redrive", path="groups/{group}/redrive", run=_redrive, done="The redrive has ended."),
    Action(
        name="discard_dead", path="groups/{group}/dead/discard", run=_discard, done="The dead letters were discarded."
    ),
)
