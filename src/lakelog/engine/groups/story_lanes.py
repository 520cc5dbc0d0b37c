"""Tells what happened to a message in one group, from its incidents, its dead letters and its present state.

These are pure functions. `stories` reads what they need.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakelog.coordinator.leasing.state import DeliveryState
from lakelog.model.fingerprint import show_fingerprint
from lakelog.model.group import Group, GroupKind
from lakelog.model.incident import IncidentKind
from lakelog.model.kinds import DeadLetterState
from lakelog.model.message import message_id, parse_message_id
from lakelog.model.message_story import MessageState, StoryEvent, StoryLane
from lakelog.model.times import to_time
from lakelog.model.topic import Topic
from lakelog.storage.groups import StoredDeadLetter
from lakelog.storage.incidents import StoredIncident

_KINDS: Mapping[IncidentKind, str] = {
    IncidentKind.FAILED: "failed",
    IncidentKind.TIMED_OUT: "timed_out",
    IncidentKind.LOST: "lost",
    IncidentKind.DEAD: "died",
    IncidentKind.ACKED: "acked",
    IncidentKind.DISCARDED: "discarded",
}
_TEXTS: Mapping[IncidentKind, str] = {
    IncidentKind.FAILED: "Attempt {deliveries} failed after {took}.",
    IncidentKind.TIMED_OUT: "Attempt {deliveries} exceeded its time after {took}.",
    IncidentKind.LOST: "{owner} was lost, or did not answer in time, after {took}.",
    IncidentKind.DEAD: "Attempt {deliveries} failed after {took}, and the message became a dead letter.",
    IncidentKind.ACKED: "Acked by {owner} after {took}.",
    IncidentKind.DISCARDED: "Discarded by {owner} after {took}.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A group, and what is known about a message in it.

    `offsets` are those of the message and of its redriven copies. `appended_ms` has the times of these copies.
    """

    group: Group
    topic: Topic
    partition: int
    offsets: Sequence[int]
    incidents: Sequence[StoredIncident]
    letters: Sequence[StoredDeadLetter]
    appended_ms: Mapping[int, int]
    state: DeliveryState | None
    """None if the group's progress cannot be read."""
    removed: int | None = None
    """The offset of the message if retention has removed it, which the group may not have noticed."""

    def id_of(self, offset: int) -> str:
        return message_id(self.topic.incarnation, self.partition, offset)


def lane_of(told: Told) -> StoryLane:
    """Return what happened to the message in the group, the oldest event first."""
    events = [
        *(event for each in told.incidents for event in _of_incident(told, each)),
        *(event for each in told.letters for event in _of_letter(told, each)),
    ]
    # A redrive has the time of its copy, and comes before what happened to the copy. Events without a time come last.
    events.sort(key=lambda event: (event.at is None, event.at or to_time(0), parse_message_id(event.message_id)))
    state, now = _present(told)
    if now is not None and not (
        state is MessageState.FINISHED and events and events[-1].kind in ("acked", "discarded")
    ):
        events.append(now)
    return StoryLane(group=told.group.name, state=state, events=tuple(events))


def _of_incident(told: Told, stored: StoredIncident) -> Iterable[StoryEvent]:
    found = stored.incident
    took = max(0, stored.at_ms - found.leased_ms)
    given: dict[str, Any] = {
        "message_id": told.id_of(found.offset),
        "owner": found.owner,
        "attempt": found.deliveries,
    }
    yield StoryEvent(kind="leased", text=f"Leased by {found.owner}.", at=to_time(found.leased_ms), **given)
    is_failure = bool(found.reason)
    yield StoryEvent(
        kind=_KINDS[found.kind],
        text=_TEXTS[found.kind].format(deliveries=found.deliveries, owner=found.owner, took=_show_ms(took)),
        at=to_time(stored.at_ms),
        failures=found.failures,
        next_at=to_time(found.due_ms),
        lease_ms=took,
        error=found.reason or None,
        traceback=found.traceback,
        fingerprint=show_fingerprint(found.fingerprint) if is_failure else None,
        **given,
    )


def _of_letter(told: Told, letter: StoredDeadLetter) -> Iterable[StoryEvent]:
    offset = letter.key.offset
    is_noted = any(
        each.incident.kind is IncidentKind.DEAD
        and (each.incident.offset, each.incident.epoch) == (offset, letter.key.epoch)
        for each in told.incidents
    )
    if not is_noted:
        yield StoryEvent(
            kind="died",
            text=f"Became a dead letter at delivery {letter.deliveries}.",
            message_id=told.id_of(offset),
            at=to_time(letter.at_ms),
            owner=letter.owner,
            attempt=letter.deliveries,
            failures=letter.failures,
            error=letter.reason,
            traceback=letter.traceback,
            fingerprint=None if letter.fingerprint is None else show_fingerprint(letter.fingerprint),
        )
    if letter.state is DeadLetterState.REDRIVEN and letter.redriven_to is not None:
        copy = told.id_of(letter.redriven_to)
        at = to_time(told.appended_ms.get(letter.redriven_to))
        yield StoryEvent(kind="redriven", text=f"Redriven as {copy}.", message_id=told.id_of(offset), at=at)
    elif letter.state is DeadLetterState.DISCARDED:
        yield StoryEvent(kind="discarded", text="The dead letter was discarded.", message_id=told.id_of(offset))


def _present(told: Told) -> tuple[MessageState, StoryEvent | None]:
    """Return the present state of the newest copy, and the event that tells it; None if an earlier event does."""
    offset = told.offsets[-1]
    own = [letter for letter in told.letters if letter.key.offset == offset]
    last = max(own, key=lambda letter: letter.key.epoch, default=None)
    state = told.state
    if last is not None and (state is None or last.key.epoch >= state.epoch):
        is_dead = last.state is DeadLetterState.DEAD
        return (MessageState.DEAD if is_dead else MessageState.DISCARDED), None
    if state is None:
        return MessageState.AHEAD, None
    found, text, given = _of_state(told, state, offset)
    return found, StoryEvent(kind=found, text=text, message_id=told.id_of(offset), **given)


def _of_state(told: Told, state: DeliveryState, offset: int) -> tuple[MessageState, str, dict[str, Any]]:
    is_removed = told.removed == offset
    is_blocked = any(offset in offsets for offsets in state.skipped.values())
    if is_removed and (offset >= state.frontier or offset in state.waiting or is_blocked):
        return MessageState.FINISHED, "Retention removed it before the group finished it.", {}
    if offset >= state.frontier:
        ahead = offset - state.frontier
        return MessageState.AHEAD, f"Not considered yet: {ahead:,} messages of the partition are before it.", {}
    for lease in state.leases.values():
        if offset in lease.open:
            given = {"at": to_time(lease.granted_ms), "owner": lease.owner, "attempt": state.deliveries(offset)}
            return MessageState.LEASED, f"Leased by {lease.owner} until {_clock(lease.until_ms)}.", given
    waiting = state.waiting.get(offset)
    if waiting is not None:
        given = {"next_at": to_time(waiting.due_ms), "failures": state.failures(offset)}
        return MessageState.WAITING, f"Waits for the next attempt, due at {_clock(waiting.due_ms)}.", given
    if is_blocked:
        return MessageState.BLOCKED, "Waits behind an earlier message with its key.", {}
    if offset < state.start:
        return MessageState.FINISHED, "Not for the group: it began to read behind the message, or a seek passed it.", {}
    if told.group.kind is GroupKind.CURSOR:
        return MessageState.FINISHED, "Read: the group has committed a position behind it.", {}
    how = "expired, skipped, or removed by retention before it was read" if is_removed else "expired or skipped"
    return MessageState.FINISHED, f"Finished: acked, left out by the filter, {how}.", {}


def _clock(ms: int) -> str:
    return to_time(ms).strftime("%H:%M:%S UTC")


def _show_ms(ms: int) -> str:
    return f"{ms} ms" if ms < 10_000 else f"{ms / 1000:,.0f} s"
