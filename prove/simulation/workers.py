"""Workers of a lease group: they consume, and send every kind of answer, in time, late, or wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from lakelog.engine import Engine
from lakelog.engine.leasing.consuming import ConsumeResult, Leased
from lakelog.errors import LakelogError, SegmentDamaged, UnsupportedFormat
from lakelog.model.lease import Answered, ConsumeRequest, LeaseAnswer, Verb
from prove.history.tables import CallOutcome, OwnerVerb, ReaderKind, SampleKind
from prove.simulation.clients import SimulatedClient, SimulatedWorld
from prove.simulation.facts import Row, hashed, outcome_of
from prove.simulation.network import CallLost
from prove.simulation.plan import CANARY, LEASE_GROUP

_RECORDED = {
    Verb.ACK: OwnerVerb.ACK,
    Verb.NACK: OwnerVerb.NACK,
    Verb.RELEASE: OwnerVerb.RELEASE,
    Verb.FAIL: OwnerVerb.FAIL,
    Verb.DISCARD: OwnerVerb.DISCARD,
    Verb.EXTEND: OwnerVerb.EXTEND,
}


_BESIDE_MS = 1000
"""Maximum duration of a call while only another group has a fault."""


class SimulatedWorker(SimulatedClient):
    role = "worker"

    def __init__(self, world: SimulatedWorld, topic: str) -> None:
        super().__init__(world)
        self.topic = topic
        self._topic_id, self._group_id = self.facts.id(topic), self.facts.id(LEASE_GROUP)
        self._asked = 0
        self._old: list[tuple[LeaseAnswer, str]] = []
        """Earlier answers, which are repeated when they are stale."""
        self._taken: list[Leased] = []
        """Leases to work on, including those that came with the outcomes of answers."""

    async def run(self) -> None:
        while True:
            consumed = await self._consume()
            if consumed is None:
                await self.rest(0.5)
                continue
            self._taken += consumed.leases
            while self._taken:
                await self._work(self._taken.pop(0))
            if not self.world.is_draining:
                await self._send_stale_answer()
                await self.rest(0.3)

    # Consuming ----------------------------------------------------------------------------------------------------

    async def _consume(self) -> ConsumeResult | None:
        world, plan = self.world, self.world.plan
        self._asked += 1
        ask = ConsumeRequest(
            topic=self.topic,
            group=LEASE_GROUP,
            owner=self.process.name,
            max_messages=100 if world.is_draining else self.chance.choice((1, 2, 4, 10)),
            lease_ms=plan.lease_ms,
            wait_ms=5000 if world.is_draining else self.chance.choice((0, 1000, 2000, 4000)),
            request_id=f"{self.process.name}-{self._asked}" if self.chance.random() < 0.8 else None,
            order=plan.order,
            retries=plan.retries,
            start_from="earliest",
        )
        for attempt in range(3):
            found = await self._consume_once(ask, repeat=attempt > 0)
            if plan.forgets and found is not None and self._forgets(found, ask):
                return await self._ask_again(found, ask)
            if found is not None or ask.request_id is None or self.chance.random() < 0.3:
                return found
        return None

    def _forgets(self, found: ConsumeResult, ask: ConsumeRequest) -> bool:
        """Return whether to act as if that response had been lost.

        Return False if a seek or a cut may end a lease early.
        """
        plan = self.world.plan
        if not found.leases or ask.request_id is None or plan.seeks or plan.max_count is not None:
            return False
        return self.chance.random() < plan.forgets

    async def _ask_again(self, first: ConsumeResult, ask: ConsumeRequest) -> ConsumeResult | None:
        """Repeat a consume, and record how much of the first response came back (L8)."""
        await self.rest(0.1)
        in_reach = self.facts.is_in_reach()
        again = await self._consume_once(ask, repeat=True)
        if again is None or not (in_reach and self.facts.is_in_reach()):
            # A cell that does not respond does not keep a repeat from the leases of other cells.
            return again
        now_ms = self.facts.database_ms()
        leased = [lease for lease in first.leases if lease.expires_ms > now_ms]
        tokens = {(lease.partition, lease.token) for lease in again.leases}
        self.facts.row(
            "sample",
            kind=int(SampleKind.REPEAT),
            topic=self._topic_id,
            group=self._group_id,
            process=self.process.id,
            at_ns=self.facts.now_ns(),
            told=sum(len(lease.offsets) for lease in leased if (lease.partition, lease.token) in tokens),
            truth=sum(len(lease.offsets) for lease in leased),
        )
        return again

    async def _consume_once(self, ask: ConsumeRequest, *, repeat: bool) -> ConsumeResult | None:
        facts, world = self.facts, self.world
        request = partial(self._consuming, ask, repeat)
        seconds = ask.wait_ms / 1000
        begun = world.loop.time() + seconds
        row = self._call_row()
        try:
            consumed: ConsumeResult = await self.call(request, seconds=seconds + 3, again=self._consumed_again)
        except (CallLost, LakelogError) as error:
            facts.complete(row, outcome_of(error))
            facts.say(f"{self.process.name} consumed: {error!r}")
            if world.plan.neighbour:
                self._note_beside(begun, [error])
            return None
        facts.complete(row, CallOutcome.OK)
        if row["outcome"] != CallOutcome.OK:
            # A failover may have lost the leases.
            return None
        together = sum(len(lease.offsets) for lease in consumed.leases)
        for lease in consumed.leases:
            self._note(lease, row, ask, together)
        return consumed

    async def _consuming(self, ask: ConsumeRequest, repeat: bool, engine: Engine) -> ConsumeResult:
        return await engine.leases.consume(self.world.scope, ask, repeat=repeat, shard=self.world.shard_of(engine))

    def _call_row(self) -> Row:
        return self.facts.invoke(
            "call",
            self.process,
            topic=self._topic_id,
            group=self._group_id,
            owner=self.process.id,
            verb=int(OwnerVerb.CONSUME),
        )

    def _consumed_again(self) -> None:
        """Record a call that the network repeats. The leases of the repeat are unknown."""
        self._call_row()

    def _note(self, lease: Leased, call: Row, ask: ConsumeRequest, together: int) -> None:
        facts = self.facts
        shared = {name: call[name] for name in ("process", "counter", "outcome", "invoked_ns", "completed_ns")}
        walls = {name: call[name] for name in ("invoked_wall_ms", "completed_wall_ms")}
        place = {"topic": self._topic_id, "partition": lease.partition, "group": self._group_id}
        for offset in lease.offsets:
            facts.row(
                "delivery",
                **shared,
                **walls,
                **place,
                offset=offset,
                owner=self.process.id,
                token=lease.token,
                number=lease.deliveries.get(offset, 1),
                failures=lease.failures.get(offset, 0),
                expires_ms=lease.expires_ms,
                lease_ms=ask.lease_ms,
                suspect=lease.suspect,
                together=together,
            )
        for piece in lease.pieces:
            messages = facts.messages(piece.batch.payload)
            for offset in piece.offsets:
                message = messages[offset - piece.batch.base]
                facts.row(
                    "seen",
                    **place,
                    offset=offset,
                    hash=hashed(message.value),
                    key=hashed(message.key),
                    identity=0,
                    reader=int(ReaderKind.DELIVERY),
                    process=self.process.id,
                    counter=call["counter"],
                    completed_ns=call["completed_ns"],
                )
        facts.say(f"{self.process.name} got {lease.token} of {self.topic}/{lease.partition}: {list(lease.offsets)}")

    # Answering ----------------------------------------------------------------------------------------------------

    async def _work(self, lease: Leased) -> None:
        """Answer the messages of a lease, in one or several calls, or not at all."""
        chance = self.chance
        if self.world.is_draining:
            await self._answer_with_retries([_answer(Verb.ACK, lease, lease.offsets)])
            return
        way = chance.random()
        if way < 0.06:
            return  # No answer: the lease expires.
        await self.rest(self.world.plan.lease_ms / 1000 * (1.6 if way < 0.2 else 0.4))
        if way < 0.35:
            await self._answer_with_retries([_answer(Verb.EXTEND, lease, (), lease_ms=self.world.plan.lease_ms)])
            await self.rest(self.world.plan.lease_ms / 1000 * 0.7)
        if way > 0.7:
            await self._answer_with_retries([self._drawn(lease, lease.offsets)])
            return
        answers = [self._drawn(lease, [offset]) for offset in lease.offsets]
        if way > 0.5:
            await self._answer_with_retries(answers)
            return
        for answer in answers:
            await self._answer_with_retries([answer])

    def _drawn(self, lease: Leased, offsets: Sequence[int]) -> LeaseAnswer:
        way = 0.0 if self.world.is_draining else self.chance.random()
        if way < 0.68:
            return _answer(Verb.ACK, lease, offsets)
        if way < 0.85:
            delay = self.chance.choice((None, None, 0, 300))
            return _answer(Verb.NACK, lease, offsets, delay_ms=delay, reason="it failed")
        if way < 0.91:
            return _answer(Verb.RELEASE, lease, offsets, delay_ms=self.chance.choice((None, 200)))
        return _answer(Verb.FAIL if way < 0.96 else Verb.DISCARD, lease, offsets)

    async def _answer_with_retries(self, answers: Sequence[LeaseAnswer], owner: str | None = None) -> None:
        """Send answers. Usually repeat them if there was no response."""
        ask = self._next_ask(answers) if owner is None and self.chance.random() < 0.4 else None
        owner = owner or self.process.name
        for attempt in range(4):
            told = await self._answer_once(answers, owner, ask, repeat=attempt > 0)
            self._old += [(answer, owner) for answer in answers]
            if CallOutcome.INFO not in told or self.chance.random() < 0.3:
                return
            await self.rest(0.2)

    def _next_ask(self, answers: Sequence[LeaseAnswer]) -> ConsumeRequest:
        """Return a consume that carries answers."""
        self._asked += 1
        return ConsumeRequest(
            topic=self.topic,
            group=LEASE_GROUP,
            owner=self.process.name,
            max_messages=self.chance.choice((1, 2, 4)),
            lease_ms=self.world.plan.lease_ms,
            request_id=f"{self.process.name}-{self._asked}",
            answers=tuple(answers),
            order=self.world.plan.order,
            retries=self.world.plan.retries,
            start_from="earliest",
        )

    async def _answer_once(
        self, answers: Sequence[LeaseAnswer], owner: str, ask: ConsumeRequest | None = None, *, repeat: bool = False
    ) -> list[CallOutcome]:
        rows = [self._answer_rows(answer, owner) for answer in answers]
        if self.world.before_ack is not None and answers[0].verb is Verb.ACK and self.server.node is not None:
            self.world.before_ack(self.server.node.name)
        call = self._call_row() if ask is not None else None
        request = partial(self._request, answers, owner) if ask is None else partial(self._consuming, ask, repeat)
        has_come_again = False

        def again() -> None:
            nonlocal has_come_again
            has_come_again = True
            self._record_repeated_answers(rows)
            if ask is not None:
                self._consumed_again()

        begun = self.world.loop.time()
        try:
            replies = await self.call(request, again=again)
        except (CallLost, LakelogError) as error:
            replies = [error] * len(answers)
            if call is not None:
                self.facts.complete(call, outcome_of(error))
        else:
            if ask is not None and call is not None:
                replies = self._record_leases(ask, call, replies)
        if self.world.plan.neighbour:
            self._note_beside(begun, replies)
        for those, reply in zip(rows, replies, strict=True):
            self._complete(those, reply)
        if has_come_again:
            # The repeat may have arrived first.
            self._record_repeated_answers(rows)
        if self.facts.trace is not None:
            said = [f"{a.verb} {a.token} {a.ranges}: {r!r}" for a, r in zip(answers, replies, strict=True)]
            self.facts.say(f"{owner} said {said}")
        return [CallOutcome(those[0]["outcome"]) for those in rows]

    def _record_leases(
        self, ask: ConsumeRequest, call: Row, consumed: ConsumeResult
    ) -> Sequence[Answered | LakelogError]:
        """Record the leases that came with the outcomes of answers, to be worked on next. Return the outcomes."""
        self.facts.complete(call, CallOutcome.OK if consumed.refusal is None else outcome_of(consumed.refusal))
        leases = consumed.leases if call["outcome"] != CallOutcome.INFO or consumed.refusal is not None else []
        together = sum(len(lease.offsets) for lease in leases)
        for lease in leases:
            self._note(lease, call, ask, together)
        self._taken += leases
        assert consumed.answered is not None
        return consumed.answered

    def _note_beside(self, begun: float, replies: Sequence[Answered | BaseException]) -> None:
        """Record a call beside a neighbour with faults.

        The row has its duration while there are no other faults, whether it failed for the neighbour's reasons (L9),
        and whether it mentioned the neighbour (S24).
        """
        facts, world = self.facts, self.world
        shared = {"process": self.process.id, "at_ns": facts.now_ns()}
        refusals = [each for each in replies if isinstance(each, LakelogError)]
        if any(CANARY in str(each) for each in refusals):
            facts.row("sample", kind=int(SampleKind.CANARY), told=1, **shared)
        failed = any(isinstance(each, (SegmentDamaged, UnsupportedFormat)) for each in refusals)
        told = int(1000 * (world.loop.time() - begun)) if world.is_quiet(begun - 1.0) else 0
        place = {"topic": self._topic_id, "group": self._group_id}
        facts.row("sample", kind=int(SampleKind.BESIDE), told=told, truth=_BESIDE_MS, stale=failed, **place, **shared)

    async def _request(self, answers: Sequence[LeaseAnswer], owner: str, engine: Engine) -> Any:
        return await engine.leases.answer(self.world.scope, self.topic, LEASE_GROUP, owner, answers)

    def _record_repeated_answers(self, rows: list[list[Row]]) -> None:
        """Record that a repeated answer may have taken effect, although it was refused.

        A repeated extend extends again, and the worker never learns the new end of the lease.
        """
        for said in rows:
            for row in said:
                if row["outcome"] == CallOutcome.FAIL or row["verb"] == _RECORDED[Verb.EXTEND]:
                    self.facts.row("answer", **{**row, "outcome": int(CallOutcome.INFO), "completed_ns": 0})

    def _answer_rows(self, answer: LeaseAnswer, owner: str) -> list[Row]:
        facts = self.facts
        offsets = [offset for first, end in answer.ranges for offset in range(first, end)]
        if answer.verb is Verb.EXTEND:
            offsets = [-1]
        rows: list[Row] = []
        for offset in offsets:
            row = facts.invoke(
                "answer",
                self.process,
                topic=self._topic_id,
                partition=answer.partition,
                offset=offset,
                group=self._group_id,
                owner=facts.id(owner),
                token=answer.token,
                verb=int(_RECORDED[answer.verb]),
                delay_ms=-1 if answer.delay_ms is None else answer.delay_ms,
            )
            if rows:
                row["counter"] = rows[0]["counter"]
            rows.append(row)
        return rows

    def _complete(self, rows: list[Row], reply: Answered | BaseException) -> None:
        for row in rows:
            if isinstance(reply, Answered):
                dead = row["offset"] in reply.dead
                self.facts.complete(row, CallOutcome.OK, expires_ms=reply.expires_ms or 0, dead=dead)
            else:
                self.facts.complete(row, outcome_of(reply))

    async def repeat_late(self) -> None:
        """Repeat answers long after they were sent. An accepted answer must not be refused (S9)."""
        for _ in range(3):
            await asyncio.sleep(self.chance.choice((2.0, 20.0, 45.0)))
            if self._old:
                answer, owner = self.chance.choice(self._old)
                await self._answer_once([answer], owner)

    async def _send_stale_answer(self) -> None:
        """Repeat an old answer, or an answer of another owner. Most of these calls are refused."""
        if not self._old or self.chance.random() > 0.15:
            return
        answer, owner = self.chance.choice(self._old)
        # If little of a closed lease is remembered, its owner is not, so another owner gets the outcome, too.
        if self.chance.random() < 0.3 and self.world.plan.remembered_bytes is None:
            owner = f"{owner}-thief"
        await self._answer_once([answer], owner)


def _answer(verb: Verb, lease: Leased, offsets: Sequence[int], **more: Any) -> LeaseAnswer:
    return LeaseAnswer(
        verb=verb,
        partition=lease.partition,
        token=lease.token,
        offsets=tuple(offsets),
        **more,
    )
