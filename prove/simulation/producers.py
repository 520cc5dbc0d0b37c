"""Producers of single messages and batches: plain, with idempotency keys, or numbered.

They repeat calls without a response.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from lakelog.engine import Engine, Numbered
from lakelog.errors import LakelogError
from lakelog.model.message import Message
from lakelog.model.position import Receipt
from prove.history.tables import CallOutcome
from prove.simulation.clients import SimulatedClient, SimulatedWorld
from prove.simulation.facts import Row, hashed, identified, outcome_of
from prove.simulation.network import CallLost

_RANKS = 64
"""The distance between the sequence numbers of two batches; the messages of a batch have the numbers in between."""


class SentBatch:
    """Messages for one topic, possibly sent more than once."""

    def __init__(self, topic: str, messages: Sequence[Message]) -> None:
        self.topic = topic
        self.messages = messages
        self.producer: str | None = None
        self.sequence = 0

    @property
    def is_repeatable(self) -> bool:
        return self.producer is not None or self.messages[0].idempotency_key is not None

    async def send(self, world: SimulatedWorld, engine: Engine) -> Any:
        numbered = None
        if self.producer is not None:
            numbered = Numbered(producer=self.producer.encode(), sequence=self.sequence)
        return await engine.publisher.messages(world.scope, self.topic, self.messages, numbered=numbered)


class SimulatedProducer(SimulatedClient):
    role = "producer"

    def __init__(self, world: SimulatedWorld) -> None:
        super().__init__(world)
        self._made = 0
        self._numbers: dict[tuple[str, int], tuple[str, int]] = {}
        """The producer id and the next sequence, by topic and partition."""

    async def run(self) -> None:
        plan = self.world.plan
        pause = 1.6 * plan.seconds / plan.publishes
        for _ in range(plan.publishes):
            await self.rest(pause)
            await self._publish(self._batch())

    def _batch(self) -> SentBatch:
        chance, plan = self.chance, self.world.plan
        topic = chance.choice(list(plan.topics))
        count = chance.choice((1, 1, 1, 2, 3, 5))
        messages = [self._message() for _ in range(count)]
        batch = SentBatch(topic, messages)
        kind = chance.random()
        if kind < 0.35:
            for number, message in enumerate(messages):
                message.idempotency_key = f"{self.process.name}-k{self._made}-{number}"
        elif kind < 0.65:
            partition = chance.randrange(plan.topics[topic])
            for message in messages:
                message.partition = partition
            batch.producer, batch.sequence = self._numbers.get((topic, partition), (self._new_id(partition), 0))
        return batch

    def _message(self) -> Message:
        self._made += 1
        key = self.chance.choice((b"a", b"a", b"b", b"c", None))
        return Message(value=f"{self.process.name}-v{self._made}".encode(), key=key)

    def _new_id(self, partition: int) -> str:
        return f"{self.process.name}/{partition}/{self._made}"

    async def _publish(self, batch: SentBatch) -> None:
        """Repeat the call until there is a response, if a repeat is safe."""
        for _ in range(6):
            outcomes = await self._send(batch)
            if batch.producer is not None:
                self._count(batch, outcomes)
            if CallOutcome.INFO not in outcomes or not batch.is_repeatable:
                break
            if self.chance.random() < 0.1:
                break
            await self.rest(0.5)
        if CallOutcome.INFO in outcomes:
            # Given up: the outcome stays unknown, and no other batch may get its number.
            self._forget(batch)
        if batch.messages[0].idempotency_key is not None and self.chance.random() < 0.3:
            await self._send_again(batch)

    async def _send_again(self, batch: SentBatch) -> None:
        """Send a used key again: with the same message, or with another one."""
        await self.rest(1.0)
        if self.chance.random() < 0.5:
            first = batch.messages[0]
            other = self._message()
            other.key, other.idempotency_key = first.key, first.idempotency_key
            batch = SentBatch(batch.topic, [other])
        await self._send(batch)

    async def _send(self, batch: SentBatch) -> list[CallOutcome]:
        rows = self._invoke(batch)
        again = self._comes_again if batch.is_repeatable else None
        try:
            answers = await self.call(partial(batch.send, self.world), again=again)
        except (CallLost, LakelogError) as error:
            answers = [error] * len(rows)
        for row, answer in zip(rows, answers, strict=True):
            self._complete(row, answer)
        self.facts.say(f"{self.process.name} published {[row['outcome'] for row in rows]} to {batch.topic}")
        return [CallOutcome(row["outcome"]) for row in rows]

    def _comes_again(self) -> None:
        """Do nothing, because the first attempt also records its repeats."""

    def _invoke(self, batch: SentBatch) -> list[Row]:
        facts, rows = self.facts, []
        for number, message in enumerate(batch.messages):
            assert message.value is not None
            sequence = batch.sequence * _RANKS + number if batch.producer is not None else None
            row = facts.invoke(
                "attempt",
                self.process,
                topic=facts.id(batch.topic),
                hash=hashed(message.value),
                key=hashed(message.key),
                identity=identified(message.idempotency_key, batch.producer, sequence),
                asked_partition=-1 if message.partition is None else message.partition,
                producer=hashed(batch.producer),
                sequence=-1 if sequence is None else sequence,
            )
            rows.append(row)
        for row in rows:
            row["batch"] = rows[0]["counter"]
        return rows

    def _complete(self, row: Row, answer: Receipt | BaseException) -> None:
        if isinstance(answer, Receipt):
            self.facts.complete(
                row, CallOutcome.OK, partition=answer.partition, offset=answer.offset, duplicate=answer.duplicate
            )
        else:
            self.facts.complete(row, outcome_of(answer))

    def _count(self, batch: SentBatch, outcomes: Sequence[CallOutcome]) -> None:
        place = (batch.topic, batch.messages[0].partition or 0)
        assert batch.producer is not None
        if CallOutcome.FAIL in outcomes:
            self._numbers.pop(place, None)
        elif CallOutcome.INFO not in outcomes:
            self._numbers[place] = (batch.producer, batch.sequence + 1)

    def _forget(self, batch: SentBatch) -> None:
        if batch.producer is not None:
            self._numbers.pop((batch.topic, batch.messages[0].partition or 0), None)
