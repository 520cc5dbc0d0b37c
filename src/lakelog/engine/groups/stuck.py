"""Why a group is stuck in a partition, as a code with evidence and remedies. The functions are pure.

`reasons` tells the status and the sentence. A cause that hides another one comes first: a worker that hangs fills the
window, so the window is not named.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from msgspec.structs import replace

from lakelog.coordinator.leasing.state import DeliveryState, Lease
from lakelog.coordinator.leasing.summary import summarize
from lakelog.engine.groups.reasons import Look, Status, no_position, reason_for
from lakelog.engine.groups.remedies import Remedies
from lakelog.model.group import Group, Order
from lakelog.model.stuck import Remedy, Stuck, StuckCode
from lakelog.model.times import to_time

SLOW_MS = 60_000
"""A lease that is older, while other messages wait, makes its owner slow."""
HUNG_MS = 600_000
"""A lease that is older makes its owner hang, even if no other message waits."""
CRASHES = 3
"""A message that lost its last owner, and was delivered so often, is in a crash loop."""
HOT_MESSAGES = 100
HOT_SHARE = 0.8
"""A key is hot if it has this share of the messages that wait behind others, and at least `HOT_MESSAGES`."""
FILTERED = 20
"""A filter that has left out this many messages and accepted none passes nothing."""

_LAST = datetime.max.replace(tzinfo=UTC)

Evidence = dict[str, str | int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Times of a partition that the state of the group does not have, in milliseconds; None if unknown."""

    oldest_ms: int | None = None
    """When the oldest unfinished message was published."""
    rebalanced_ms: int | None = None
    """When the assignment of the group last changed."""
    cut: int = 0
    """How many unread messages retention has removed below the log start."""


def explain(state: DeliveryState, look: Look, times: Times) -> tuple[Status, Stuck | None]:
    """Return the status of the group in the partition, and why it is stuck there, if it does."""
    status, text = reason_for(state, look)
    partition = _Partition(state, look, times, text or "")
    return status, _named(partition.found(status), look)


def unresponsive(group: str, topic: str, partition: int, cell: int) -> Stuck:
    """Return why nothing is known of a partition: its cell does not respond."""
    return Stuck(
        code=StuckCode.UNRESPONSIVE_CELL,
        text=f"Cell {cell} does not respond, so group '{group}' gets nothing of its partitions. Check its database "
        "with `lakelog doctor`. The group continues by itself when the cell responds.",
        evidence={"cell": cell},
        remedies=(Remedy(label="Find out what is wrong with the database", cli="lakelog doctor"),),
        topic=topic,
        partitions=(partition,),
    )


def without_position(group: str, topic: str, partition: int) -> Stuck:
    """Return why a group gets nothing of a topic that it has not begun to read."""
    return Stuck(
        code=StuckCode.NO_POSITION,
        text=no_position(group, topic),
        remedies=Remedies(group, topic, partition).start(),
        topic=topic,
        partitions=(partition,),
    )


def together(found: Iterable[Stuck]) -> tuple[Stuck, ...]:
    """Return the causes, the most important first: one for all partitions of a topic with the same code.

    Its text, evidence and remedies are those of the partition that waits longest. Without a cause, return that nothing
    is wrong.
    """
    merged: dict[tuple[StuckCode, str | None], Stuck] = {}
    for each in sorted(found, key=lambda one: _LAST if one.since is None else one.since):
        first = merged.get((each.code, each.topic))
        merged[each.code, each.topic] = (
            each if first is None else replace(first, partitions=(*first.partitions, *each.partitions))
        )
    causes = [replace(each, partitions=tuple(sorted(each.partitions))) for each in merged.values()]
    order = list(StuckCode)
    nothing = Stuck(code=StuckCode.NOTHING_WRONG, text="No message waits longer than it must.")
    return tuple(sorted(causes, key=lambda each: order.index(each.code))) or (nothing,)


def _named(found: Stuck | None, look: Look) -> Stuck | None:
    return None if found is None else replace(found, topic=look.topic, partitions=(look.partition,))


@dataclass(frozen=True, slots=True)
class _Partition:
    """A group in one partition, at one time."""

    state: DeliveryState
    look: Look
    times: Times
    text: str

    @property
    def group(self) -> Group:
        return self.look.view.group

    @property
    def remedies(self) -> Remedies:
        return Remedies(self.group.name, self.look.topic, self.look.partition)

    def found(self, status: Status) -> Stuck | None:
        if status is Status.PAUSED:
            evidence: Evidence = {"paused": ", ".join(sorted(self.group.paused))}
            is_whole = "*" in self.group.paused
            return self._stuck(StuckCode.PAUSED, self._oldest(), evidence, self.remedies.resume(is_whole=is_whole))
        if status is Status.UNREADABLE and self.look.damage is not None:
            damage = self.look.damage
            evidence = {"first_offset": damage.first, "end_offset": damage.end}
            remedies = self.remedies.past(damage.end, self.group.kind)
            return self._stuck(StuckCode.DAMAGED_SEGMENT, self._oldest(), evidence, remedies)
        return (
            self._crash_loop()
            or self._no_member(status)
            or self._held_long()
            or self._retention_cut()
            or self._waiting(status)
            or self._filtered(status)
        )

    def _waiting(self, status: Status) -> Stuck | None:
        """Return the cause that follows from the status, for owners that answer."""
        match status:
            case Status.FULL:
                return self._full()
            case Status.REBALANCING:
                return self._stuck(StuckCode.REBALANCING, self.times.rebalanced_ms, {}, ())
            case Status.RETRYING:
                return self._blocked() or self._retrying()
            case Status.QUEUED:
                return self._hot_key() or self._alone() or self._capacity()
            case Status.WORKING:
                return self._hot_key()
            case _:
                return None

    # Causes -----------------------------------------------------------------------------------------------------------

    def _no_member(self, status: Status) -> Stuck | None:
        if status is not Status.NO_CONSUMER:
            return None
        view = self.look.view
        known = [each for each in (self.times.oldest_ms, self.times.rebalanced_ms) if each is not None]
        evidence: Evidence = {"members": len(view.members), "lag": self._lag()}
        remedies = (Remedy(label=f"Start a worker of group '{self.group.name}' that reads '{self.look.topic}'"),)
        return self._stuck(StuckCode.NO_MEMBER, max(known, default=None), evidence, remedies)

    def _crash_loop(self) -> Stuck | None:
        """Return the message that lost its owner last, and was delivered most often, if that is often."""
        state = self.state
        held = [offset for lease in state.leases.values() if lease.suspect for offset in lease.open]
        lost = [offset for offset in state.waiting if (found := state.histories.get(offset)) and found.suspect]
        deliveries, offset = max(((state.deliveries(each), each) for each in (*held, *lost)), default=(0, 0))
        if deliveries < CRASHES:
            return None
        evidence: Evidence = {"offset": offset, "deliveries": deliveries, "failures": state.failures(offset)}
        text = (
            f"Message {offset} was delivered {deliveries} times, and its last owner died or lost its lease without an "
            "answer. The message probably ends the process of each worker: look at their logs."
        )
        remedies = self.remedies.skip_one(offset) if offset == state.committed else ()
        remedies = (Remedy(label="Correct the handler, and start the workers again"), *remedies)
        return self._stuck(StuckCode.CRASH_LOOP, self._oldest(), evidence, remedies, text)

    def _held_long(self) -> Stuck | None:
        """Return the owner that has held a lease for longest, if that is long."""
        now = self.look.view.now_ms
        alive = [lease for lease in self.state.leases.values() if lease.until_ms > now]
        if not alive:
            return None
        oldest = min(alive, key=lambda lease: lease.granted_ms)
        held_ms = now - oldest.granted_ms
        is_hung = held_ms >= HUNG_MS
        waiting = self._lag() - sum(len(lease.open) for lease in alive)
        if not is_hung and (held_ms < SLOW_MS or waiting <= 0):
            return None
        evidence: Evidence = {
            "owner": oldest.owner,
            "offset": _first(oldest),
            "messages": len(oldest.open),
            "held_ms": held_ms,
            "waiting": waiting,
        }
        code = StuckCode.HUNG_HANDLER if is_hung else StuckCode.SLOW_OWNER
        what = "still holds" if is_hung else "has held"
        text = (
            f"{oldest.owner} {what} message {_first(oldest)} after {held_ms // 1000} s, and keeps its lease alive. "
            f"If its handler hangs, end the process: other members get its messages when the lease ends. To take all "
            f"leases of the partition away now, run `{self.remedies.again(self.state.committed)[0].cli}`."
        )
        remedies = (
            Remedy(label=f"Find out what {oldest.owner} is doing, and restart it"),
            *self.remedies.again(self.state.committed),
        )
        return self._stuck(code, oldest.granted_ms, evidence, remedies, text)

    def _full(self) -> Stuck:
        now = self.look.view.now_ms
        owners = sorted({lease.owner for lease in self.state.leases.values() if lease.until_ms > now})
        window = self.group.settings.window
        evidence: Evidence = {
            "window": window,
            "leased": self.state.open_count,
            "retries": len(self.state.waiting),
            "owners": len(owners),
        }
        since = max((lease.granted_ms for lease in self.state.leases.values()), default=None)
        return self._stuck(StuckCode.WINDOW_FULL, since, evidence, self.remedies.window(window))

    def _hot_key(self) -> Stuck | None:
        state = self.state
        if state.skipped_count < HOT_MESSAGES or self.group.settings.order is not Order.KEY:
            return None
        offsets = max(state.skipped.values(), key=len)
        if len(offsets) < max(HOT_MESSAGES, HOT_SHARE * state.skipped_count):
            return None
        evidence: Evidence = {"offset": offsets[0], "messages": len(offsets), "skipped": state.skipped_count}
        text = (
            f"{len(offsets):,} messages have the key of message {offsets[0]}, and are delivered one after another. "
            "More workers do not help. Give the messages different keys, or deliver them in any order with "
            f"`lakelog groups alter {self.group.name} --order none`."
        )
        return self._stuck(StuckCode.HOT_KEY, self._oldest(), evidence, self.remedies.unordered(), text)

    def _blocked(self) -> Stuck | None:
        state = self.state
        is_ordered = self.group.settings.order is Order.PARTITION
        behind = self._lag() - len(state.waiting)
        if not state.waiting or not (is_ordered or state.skipped_count) or behind <= 0:
            return None
        offset = min(state.waiting)
        waiting, history = state.waiting[offset], state.histories.get(offset)
        evidence: Evidence = {
            "offset": offset,
            "messages": behind,
            "failures": 0 if history is None else history.failures,
            "due_ms": waiting.due_ms - self.look.view.now_ms,
        }
        remedies = self.remedies.again(state.committed)
        if offset == state.committed:
            remedies = (*remedies, *self.remedies.skip_one(offset))
        return self._stuck(StuckCode.KEY_BLOCKED, self._oldest(), evidence, remedies)

    def _retrying(self) -> Stuck:
        state, now = self.state, self.look.view.now_ms
        dues = [each.due_ms for each in state.waiting.values()]
        failures = max((state.failures(offset) for offset in state.waiting), default=0)
        evidence: Evidence = {
            "messages": len(dues),
            "failures": failures,
            "first_due_ms": min(dues, default=now) - now,
            "last_due_ms": max(dues, default=now) - now,
        }
        return self._stuck(StuckCode.RETRY_WAVE, self._oldest(), evidence, self.remedies.again(state.committed))

    def _alone(self) -> Stuck | None:
        state = self.state
        suspects = [each for each in state.waiting if (found := state.histories.get(each)) and found.suspect]
        if not suspects or state.leases or state.frontier < self.look.high_watermark or state.has_ready():
            return None
        evidence: Evidence = {"messages": len(suspects), "offset": min(suspects)}
        since = min(state.waiting[each].due_ms for each in suspects)
        remedies = (Remedy(label=f"Start one more worker of group '{self.group.name}', or wait a few seconds"),)
        return self._stuck(StuckCode.SUSPECTS_ALONE, since, evidence, remedies)

    def _capacity(self) -> Stuck:
        view = self.look.view
        evidence: Evidence = {
            "lag": self._lag(),
            "members": len(view.members),
            "working_on": sum(sum(places.values()) for places in view.held.values()),
        }
        remedies = (Remedy(label=f"Start more workers of group '{self.group.name}', or raise their concurrency"),)
        return self._stuck(StuckCode.CAPACITY, self._oldest(), evidence, remedies)

    def _retention_cut(self) -> Stuck | None:
        if not self.times.cut:
            return None
        topic = self.look.topic
        evidence: Evidence = {"messages": self.times.cut, "committed": self.state.committed}
        text = (
            f"Retention removed {self.times.cut:,} messages of topic '{topic}', partition {self.look.partition}, "
            f"before group '{self.group.name}' read them. They are lost for the group. Keep messages for longer with "
            f"`lakelog topics alter {topic} --max-age`."
        )
        return self._stuck(StuckCode.RETENTION_CUT, None, evidence, self.remedies.keep_longer(), text)

    def _filtered(self, status: Status) -> Stuck | None:
        counts = self.state.counts
        wanted = self.group.settings.in_topic(self.look.topic).filter
        others = counts.acked + counts.dead + counts.discarded + counts.expired
        is_idle = status is Status.CAUGHT_UP and not others
        if wanted is None or counts.filtered < FILTERED or not is_idle:
            return None
        # A topic's own filter overrides that of the group.
        own = self.group.settings.topics.get(self.look.topic)
        is_whole = own is None or own.filter is None
        only = "" if is_whole else f" --topic {self.look.topic}"
        evidence: Evidence = {"filter": wanted, "filtered": counts.filtered}
        text = (
            f"The filter `{wanted}` has left out all {counts.filtered:,} messages since the last seek. If that is "
            f"wrong, change it with `lakelog groups alter {self.group.name}{only} --filter`, and move the group back "
            f"with `lakelog groups seek {self.group.name} {self.look.topic}`."
        )
        remedies = self.remedies.unfiltered(is_whole=is_whole)
        return self._stuck(StuckCode.FILTER_PASSES_NOTHING, None, evidence, remedies, text)

    # Parts of the above -----------------------------------------------------------------------------------------------

    def _lag(self) -> int:
        return summarize(self.state).lag(self.look.high_watermark)

    def _oldest(self) -> int | None:
        return self.times.oldest_ms

    def _stuck(
        self,
        code: StuckCode,
        since_ms: int | None,
        evidence: Evidence,
        remedies: tuple[Remedy, ...],
        text: str | None = None,
    ) -> Stuck:
        return Stuck(
            code=code,
            text=self.text if text is None else text,
            since=to_time(since_ms),
            evidence=evidence,
            remedies=remedies,
        )


def _first(lease: Lease) -> int:
    return lease.open.ranges[0]
