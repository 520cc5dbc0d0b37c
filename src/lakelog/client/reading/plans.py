"""Joins the pages of a plan: a server returns the segments of a long history in parts."""

from __future__ import annotations

from dataclasses import replace

from lakelog.model.lake import PartitionPlan, Plan, PlanRequest

PAGE_SEGMENTS = 5000
"""Segments of one page, about 2.5 MB."""


def rest_of(plan: Plan) -> PlanRequest | None:
    """Return the request for the next page; None if the plan is complete."""
    if all(each.rest_from is None for each in plan.partitions):
        return None
    return PlanRequest(
        topic=plan.topic,
        incarnation=plan.incarnation,
        starts={each.partition: each.end if each.rest_from is None else each.rest_from for each in plan.partitions},
        ends={each.partition: each.end for each in plan.partitions},
        max_segments=PAGE_SEGMENTS,
    )


def joined(plan: Plan, page: Plan) -> Plan:
    """Return the plan with the segments of the next page. Partitions that were added in between are left out."""
    found = {each.partition: each for each in page.partitions}
    return replace(plan, partitions=tuple(_joined(each, found[each.partition]) for each in plan.partitions))


def _joined(plan: PartitionPlan, page: PartitionPlan) -> PartitionPlan:
    if plan.rest_from is None:
        return plan
    if plan.hot_from == plan.rest_from == page.start:
        return replace(
            plan,
            segments=(*plan.segments, *page.segments),
            hot_from=page.hot_from,
            later=page.later,
            rest_from=page.rest_from,
        )
    return replace(plan, later=(*plan.later, *page.segments, *page.later), rest_from=page.rest_from)
