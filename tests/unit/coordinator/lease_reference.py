"""A second, slow telling of what leases promise, message by message, for `test_leasing_model` to compare with.

It looks through all messages for every question. Only one thing it does not foretell: which keys come first among those
that are ready. There it checks what was granted, and goes along.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from lakelog.coordinator.leasing.acquiring import ALONE_WITHIN_MS
from lakelog.coordinator.leasing.operations import (
    AcquireMessages,
    CommitPosition,
    ExtendLease,
    FinishMessages,
    Granted,
    ReturnKind,
    ReturnMessages,
    SeekPosition,
    SkipTo,
    StepContext,
)
from lakelog.coordinator.leasing.state import MessageState
from lakelog.model.group import Order
from tests.unit.coordinator.lease_progress import Entry, Hold, Memory, Progress, Refused


class Reference(Progress):
    """The expected effect of each operation."""

    # Answers ----------------------------------------------------------------------------------------------------------

    def answer(
        self,
        operation: FinishMessages | ReturnMessages | ExtendLease | SeekPosition | SkipTo | CommitPosition,
        context: StepContext,
    ) -> Sequence[int]:
        """Which offsets the reply calls dead."""
        if isinstance(operation, SeekPosition):
            self.seek(operation)
            return []
        if isinstance(operation, SkipTo):
            self.skip_to(operation)
            return []
        self.check_generation(operation.generation)
        dead: Sequence[int] = []
        match operation:
            case FinishMessages():
                self.settle(operation, context)
            case ReturnMessages():
                dead = self.give_back(operation, context)
            case ExtendLease():
                self.extend(operation, context)
            case CommitPosition():
                self.commit(operation, context)
        self.fence(operation.generation)
        self.close_empty(context.now_ms)
        return dead

    def check_generation(self, generation: int | None) -> None:
        if generation is not None and generation < self.generation:
            raise Refused("stale_generation")

    def fence(self, generation: int | None) -> None:
        if generation is not None and generation > self.generation:
            self.generation = generation
            self.seen["fenced"] += 1

    def find(self, owner: str, token: int | None, offset: int | None, now: int) -> Hold:
        """The running or remembered lease that is meant."""
        if token is None and offset is None:
            raise Refused("invalid_request")
        if token is not None:
            found = [hold for hold in self.holds if hold.token == token]
        else:
            found = [hold for hold in self.holds if offset in hold.open]
            found = found or [hold for hold in self.held_by(owner) if offset in hold.said]
        if found:
            hold = found[0]
            if hold.owner != owner:
                raise Refused("not_owner")
            if hold.until <= now:
                self.lower.append(hold.until)
                return replace(hold, open=[], said=hold.said | dict.fromkeys(hold.open, "lease expired"), closed=now)
            self.upper.append(hold.until - 1)
            return hold
        known = [hold for hold in self.closed if self.memory(hold.token) is Memory.DETAIL]
        if token is not None and token not in [hold.token for hold in known]:
            return self.find_outlined(token)
        old = [hold for hold in known if hold.owner == owner]
        old = [hold for hold in old if (hold.token == token if token is not None else offset in hold.said)]
        if not old:
            raise Refused("lease_lost")
        return old[-1]

    def find_outlined(self, token: int) -> Hold:
        """A closed lease of which at most the one outcome of all its messages is known."""
        for hold in self.closed:
            if hold.token == token:
                if self.memory(token) is Memory.NONE:
                    raise Refused("outcome_forgotten")
                return hold
        raise Refused("lease_lost")

    def named(self, hold: Hold, ranges: Iterable[tuple[int, int]], same: Sequence[str]) -> list[int]:
        if any(end - first > len(self.entries) for first, end in ranges):
            raise Refused("lease_lost")
        offsets = sorted({offset for first, end in ranges for offset in range(first, end)})
        if hold.closed is not None and self.memory(hold.token) is Memory.OUTCOME:
            self.check_outlined(hold, offsets, same)
            return offsets
        for offset in offsets:
            if offset not in hold.open and hold.said.get(offset) not in same:
                raise Refused("lease_lost")
        return offsets

    def check_outlined(self, hold: Hold, offsets: Sequence[int], same: Sequence[str]) -> None:
        """Any messages are believed that can have had the one outcome of the lease."""
        [outcome] = set(hold.said.values())
        can = all(self.start <= offset < self.frontier for offset in offsets)
        if outcome in ("acked", "discarded", "died"):
            can = can and all(self.entries[offset].stage.is_end for offset in offsets)
        if outcome not in same or not can:
            raise Refused("lease_lost")
        self.seen["answered by the one outcome"] += 1

    def check_order(self, hold: Hold, offsets: Sequence[int]) -> None:
        for offset in set(offsets) & set(hold.open):
            key = self.entries[offset].key
            earlier = [other for other in hold.open if other < offset and self.entries[other].key == key != 0]
            if not set(earlier) <= set(offsets):
                raise Refused("out_of_order")

    def settle(self, operation: FinishMessages, context: StepContext) -> None:
        if not operation.ranges:
            raise Refused("invalid_request")
        if operation.once:
            self.settle_once(operation, context)
            return
        said, stage = ("discarded", MessageState.DISCARDED) if operation.discard else ("acked", MessageState.ACKED)
        hold = self.find(operation.owner, operation.token, operation.ranges[0][0], context.now_ms)
        if operation.through:
            end = operation.ranges[-1][1]
            below = {word for offset, word in hold.said.items() if offset < end}
            if hold.closed is not None and self.memory(hold.token) is Memory.OUTCOME:
                self.named(hold, operation.ranges, [said])
            elif hold.closed is not None and (said not in below or "lease expired" in below):
                raise Refused("lease_lost")
            offsets = [offset for offset in hold.open if offset < end]
        else:
            offsets = self.named(hold, operation.ranges, [said])
            self.check_order(hold, offsets)
        if not set(offsets) & set(hold.open):
            self.note_repeat(hold)
        for offset in [offset for offset in offsets if offset in hold.open]:
            self.move(self.leave(hold, offset, said), stage, said)

    def settle_once(self, operation: FinishMessages, context: StepContext) -> None:
        """The first message of a value is acked, unless one was accepted before; the others are filtered."""
        hold = self.find(operation.owner, operation.token, operation.ranges[0][0], context.now_ms)
        offsets = self.named(hold, operation.ranges, ["acked", "discarded"])
        is_outlined = hold.closed is not None and self.memory(hold.token) is Memory.OUTCOME
        if not operation.only_taken:
            self.check_order(hold, offsets)
        if not set(offsets) & set(hold.open):
            self.note_repeat(hold)
        taken = {*operation.taken, *self.accepted_values}
        for offset in [offset for offset in offsets if offset in hold.open]:
            value = operation.once.get(offset)
            if value in taken:
                self.move(self.leave(hold, offset, "discarded"), MessageState.FILTERED, "filtered as a repeat")
            elif not operation.only_taken:
                self.move(self.leave(hold, offset, "acked"), MessageState.ACKED, "acked")
                if value is not None:
                    self.accepted_values.append(value)
                    taken.add(value)
        said = dict.fromkeys(offsets, *set(hold.said.values())) if is_outlined else hold.said
        self.filtered = [offset for offset in sorted(operation.once) if said.get(offset) == "discarded"]

    def filtered_by(self, operation: object) -> list[int]:
        """What the reply to the last operation says about repeats."""
        return self.filtered if isinstance(operation, FinishMessages) and operation.once else []

    def note_repeat(self, hold: Hold) -> None:
        self.seen["repeated answer"] += 1
        self.seen["repeated after the end of the lease"] += "lease expired" in hold.said.values()

    def give_back(self, operation: ReturnMessages, context: StepContext) -> list[int]:
        if not operation.ranges:
            raise Refused("invalid_request")
        hold = self.find(operation.owner, operation.token, operation.ranges[0][0], context.now_ms)
        same = {ReturnKind.NACK: ["nacked", "died"], ReturnKind.RELEASE: ["released"], ReturnKind.FATAL_NACK: ["died"]}
        offsets = self.named(hold, operation.ranges, same[operation.kind])
        if not set(offsets) & set(hold.open):
            self.note_repeat(hold)
        elif operation.kind is ReturnKind.RELEASE:
            self.release(hold, offsets, context.now_ms + (operation.delay_ms or 0), context.log_start)
        else:
            self.check_order(hold, offsets)
            self.nack(hold, offsets, operation, context)
        if hold.closed is not None and self.memory(hold.token) is Memory.OUTCOME:
            return offsets if "died" in hold.said.values() else []
        return [offset for offset in offsets if hold.said.get(offset) == "died"]

    def nack(self, hold: Hold, offsets: Sequence[int], operation: ReturnMessages, context: StepContext) -> None:
        for offset in offsets:
            if offset not in hold.open:
                continue
            failures = self.entries[offset].failures + 1
            if operation.kind is ReturnKind.FATAL_NACK:
                self.die(hold, offset, context, "died", "died of a fatal nack")
            elif failures > context.config.retries.max:
                self.die(hold, offset, context, "died", "died of a nack")
            else:
                delay = context.config.retries.delay_ms(failures, context.chance)
                due = context.now_ms + (delay if operation.delay_ms is None else operation.delay_ms)
                self.wait(hold, offset, due, "nacked", failed=True, suspect=False)

    def release(self, hold: Hold, offsets: Sequence[int], due: int, log_start: int) -> None:
        for offset in offsets:
            if offset not in hold.open:
                continue
            if offset < log_start:
                self.move(self.leave(hold, offset, "released"), MessageState.SKIPPED, "given back below the log start")
                continue
            entry = self.entries[offset]
            in_front = [other for other in hold.open if other < offset and self.entries[other].key == entry.key != 0]
            if in_front:
                self.move(self.leave(hold, offset, "released"), MessageState.SKIPPED, "given back behind another")
                self.go_behind(hold, entry, "released")
            else:
                self.wait(hold, offset, due, "released", failed=False, suspect=False)

    def extend(self, operation: ExtendLease, context: StepContext) -> None:
        try:
            hold = self.find(operation.owner, operation.token, operation.offset, context.now_ms)
        except Refused as refused:
            raise Refused(str(refused).replace("outcome_forgotten", "lease_lost")) from None
        if hold.closed is not None:
            raise Refused("lease_lost")
        hold.until = max(hold.until, context.now_ms + operation.lease_ms)
        self.seen["extended"] += 1
        if operation.alone and len(hold.open) == 1 and not hold.alone:
            self.seen["marked alone"] += 1
            for other in self.held_by(hold.owner):
                other.alone = False
            hold.alone = True

    def seek(self, operation: SeekPosition) -> None:
        if operation.epoch <= self.epoch:
            return
        self.seen["sought"] += 1
        self.epoch, self.start, self.frontier = operation.epoch, operation.offset, operation.offset
        self.holds, self.closed = [], []
        self.entries = [
            Entry(each.offset, each.key, each.filtered, each.expires, token=each.token) for each in self.entries
        ]

    def skip_to(self, operation: SkipTo) -> None:
        """The same messages end as when retention takes them; a leased one keeps its place."""
        if operation.epoch != self.epoch:
            raise Refused("position_refused")
        leased = self.of_stage(MessageState.LEASED)
        before = len(self.of_stage(MessageState.CUT))
        self.cut(operation.offset)
        self.seen["cut by a skip"] += len(self.of_stage(MessageState.CUT)) - before
        self.seen["leased below a skip"] += sum(each.offset < operation.offset for each in leased)
        assert self.of_stage(MessageState.LEASED) == leased

    def commit(self, operation: CommitPosition, context: StepContext) -> None:
        if operation.epoch is not None and operation.epoch != self.epoch:
            raise Refused("position_refused")
        if operation.offset < self.frontier:
            raise Refused("position_refused")
        if operation.offset > context.high_watermark:
            raise Refused("offset_out_of_range")
        for entry in self.entries[self.frontier : operation.offset]:
            self.move(entry, MessageState.ACKED, "positioned")
        self.frontier = operation.offset

    # Time -------------------------------------------------------------------------------------------------------------

    def cut(self, log_start: int) -> None:
        for entry in self.entries[self.start : log_start]:
            if entry.stage in (MessageState.WAITING, MessageState.SKIPPED, MessageState.UNCONSIDERED):
                self.move(entry, MessageState.CUT, "cut")
        self.frontier = max(self.frontier, log_start)

    def expire(self, context: StepContext) -> None:
        now, retries = context.now_ms, context.config.retries
        for hold in sorted(self.holds, key=lambda hold: (hold.until, hold.token)):
            if hold.until > now:
                continue
            self.lower.append(hold.until)
            said = "lease expired"
            for offset in list(hold.open):
                if offset not in hold.open:
                    continue
                failures = self.entries[offset].failures + 1
                if hold.alone and failures > retries.max:
                    self.die(hold, offset, context, said, "died of an expiry")
                    continue
                due = now + (retries.delay_ms(failures, context.chance) if hold.alone else 0)
                self.wait(hold, offset, due, said, failed=hold.alone, suspect=True)
            self.close_empty(now)

    # Who asks ---------------------------------------------------------------------------------------------------------

    def take(
        self, operation: AcquireMessages, context: StepContext, got: Granted | None, lapsed: set[int]
    ) -> list[int]:
        """The messages that must be granted, if any. `lapsed` has those that expired before their turn."""
        self.check_generation(operation.generation)
        self.fence(operation.generation)
        config, held = context.config, self.held_by(operation.owner)
        again = [hold for hold in held if operation.request and hold.request == operation.request]
        if again:
            self.seen["lease repeated"] += 1
            self.upper.append(again[0].until - 1)
            assert got is not None
            assert got.token == again[0].token
            return again[0].open
        if config.paused or operation.max_messages < 1:
            return []
        if not operation.isolates and any(hold.suspect for hold in held):
            self.seen["busy with a suspect"] += 1
            return []
        if operation.isolates or not (held or operation.held_elsewhere):
            suspect = self.first_suspect(context.now_ms)
            if suspect is not None:
                self.hand_out(operation, context, [suspect.offset], suspect=True)
                return [suspect.offset]
        return self.take_plain(operation, context, got, lapsed)

    def take_plain(
        self, operation: AcquireMessages, context: StepContext, got: Granted | None, lapsed: set[int]
    ) -> list[int]:
        room = context.config.window - len(self.of_stage(MessageState.LEASED, MessageState.WAITING))
        due = self.due_retries(operation, context.now_ms)
        ready = self.ready(operation.max_messages - len(due), room, context.now_ms, got, lapsed)
        want = min(operation.max_messages - len(due) - len(ready), room - len(ready))
        fresh = self.fresh(want, context, alone=not (due or ready))
        for name, those in (("retried", due), ("handed out ready", ready), ("handed out fresh", fresh)):
            self.seen[name] += len(those)
        if due or ready or fresh:
            self.hand_out(operation, context, sorted([*due, *ready, *fresh]), suspect=False)
        return sorted([*due, *ready, *fresh])

    def first_suspect(self, now: int) -> Entry | None:
        for entry in sorted(self.of_stage(MessageState.WAITING), key=lambda each: (each.due, each.offset)):
            if entry.suspect and entry.due <= now:
                self.lower.append(entry.due)
                if not entry.is_over(now):
                    self.seen["handed out suspect"] += 1
                    return entry
                self.lapse(entry, "lapsed waiting")
        return None

    def due_retries(self, operation: AcquireMessages, now: int) -> list[int]:
        due = [each for each in self.of_stage(MessageState.WAITING) if each.due <= now and not each.suspect]
        due = sorted(due, key=lambda each: (each.due, each.offset))[: operation.max_messages]
        late = [
            each for each in self.of_stage(MessageState.WAITING) if each.due + ALONE_WITHIN_MS <= now and each.suspect
        ]
        late = sorted(late, key=lambda each: (each.due, each.offset))[: operation.max_messages - len(due)]
        self.lower += [each.due for each in due] + [each.due + ALONE_WITHIN_MS for each in late]
        self.seen["suspect with others"] += len(late)
        due += late
        for each in [each for each in due if each.is_over(now)]:
            self.lapse(each, "lapsed waiting")
        return [each.offset for each in due if each.stage is MessageState.WAITING]

    def ready(self, want: int, room: int, now: int, got: Granted | None, lapsed: set[int]) -> list[int]:
        """Takes what was granted, if it is right: of free keys, from the front, as many as fit."""
        granted = set(got.offsets) if got else set()
        free = [
            each
            for each in self.of_stage(MessageState.SKIPPED)
            if not self.of_key(each.key, MessageState.LEASED, MessageState.WAITING)
        ]
        chosen = [each for each in free if each.offset in granted]
        left = [each for each in free if each.offset not in granted and each.offset not in lapsed]
        for each in [each for each in free if each.offset in lapsed]:
            assert each.is_over(now)
            self.lapse(each, "lapsed skipped")
        for each in chosen:
            assert not each.is_over(now)
            assert not [other for other in left if other.key == each.key and other.offset < each.offset]
        assert len(chosen) <= max(0, min(want, room))
        assert len(chosen) == min(want, room) or not left or min(want, room) <= 0, "ready messages were left over"
        return [each.offset for each in chosen]

    def lapse(self, entry: Entry, why: str) -> None:
        assert entry.expires is not None
        self.lower.append(entry.expires)
        self.move(entry, MessageState.EXPIRED, why)

    def fresh(self, want: int, context: StepContext, *, alone: bool) -> list[int]:
        """Goes up from the frontier; what is of a blocked key is skipped, as far as the look-ahead allows."""
        candidates, found = context.candidates, list[int]()
        if want <= 0 or not candidates.start <= self.frontier < candidates.end:
            return []
        if self.order is Order.PARTITION and (self.is_blocked(1) or not alone):
            return []
        blocked = {
            each.key
            for each in self.of_stage(MessageState.LEASED, MessageState.WAITING, MessageState.SKIPPED)
            if each.key
        }
        while len(found) < want and self.frontier < candidates.end:
            entry = self.entries[self.frontier]
            if entry.is_over(context.now_ms):
                self.lapse(entry, "expired at first sight")
            elif entry.filtered:
                self.move(entry, MessageState.FILTERED, "filtered")
            elif entry.key in blocked:
                if len(self.of_stage(MessageState.SKIPPED)) >= context.config.look_ahead:
                    self.seen["look-ahead full"] += 1
                    break
                self.move(entry, MessageState.SKIPPED, "skipped")
            else:
                found.append(entry.offset)
            self.frontier += 1
        return found

    def hand_out(self, operation: AcquireMessages, context: StepContext, offsets: list[int], *, suspect: bool) -> None:
        alone = suspect and not operation.isolates
        for hold in self.held_by(operation.owner):
            hold.alone = hold.alone and hold.suspect
        self.last_token += 1
        until = context.now_ms + operation.lease_ms
        for offset in offsets:
            entry = self.entries[offset]
            assert entry.token < self.last_token, "tokens of a message rise (S8)"
            self.move(entry, MessageState.LEASED, "leased")
            entry.deliveries += 1
            entry.token, entry.suspect = self.last_token, False
        self.holds.append(
            Hold(self.last_token, operation.owner, operation.request, until, suspect, alone, list(offsets))
        )
