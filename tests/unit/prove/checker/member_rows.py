"""Histories of members as rows: joins, assignments, commits and consumes. Times are in milliseconds."""

from __future__ import annotations

from typing import Any

from prove.history.tables import MemberEvent, OwnerVerb
from tests.unit.prove.checker.rows import Rows, row

MS = 1_000_000


def member(event: MemberEvent, name: str, began: int, generation: int = 0, **more: Any) -> Rows:
    """Return an event of one member of `g`, which took a millisecond; its counter is the time."""
    when = {"invoked_ns": began * MS, "completed_ns": (began + 1) * MS}
    told = {"topic": "t", "group": "g", "member": name, "process": name, "counter": began, "generation": generation}
    return row("member", **{**told, **when, "event": event, **more})


def join(name: str, began: int, generation: int = 0, *partitions: int, **more: Any) -> Rows:
    """Return a join with its first assignment."""
    rows = member(MemberEvent.JOIN, name, began, generation, **more)
    return rows + assigned(name, began, generation, *partitions)


def leave(name: str, began: int, **more: Any) -> Rows:
    return member(MemberEvent.LEAVE, name, began, **more)


def assigned(name: str, began: int, generation: int, *partitions: int, **more: Any) -> Rows:
    made = (member(MemberEvent.ASSIGNED, name, began, generation, partition=each, **more) for each in partitions)
    return sum(made, Rows())


def revoked(name: str, began: int, generation: int, *partitions: int, **more: Any) -> Rows:
    made = (member(MemberEvent.REVOKED, name, began, generation, partition=each, **more) for each in partitions)
    return sum(made, Rows())


def commit(name: str, began: int, generation: int, partition: int = 0, **more: Any) -> Rows:
    return member(MemberEvent.COMMIT, name, began, generation, partition=partition, **more)


def poll(name: str, began: int, ended: int, **more: Any) -> Rows:
    """Return a consume that waits."""
    when = {"invoked_ns": began * MS, "completed_ns": ended * MS}
    told = {"topic": "t", "group": "g", "owner": name, "process": name, "counter": began, "verb": OwnerVerb.CONSUME}
    return row("call", **{**told, **when, **more})
