"""The final state of a run, read by a new server over an undisturbed connection: the log, progress, dead letters."""

from __future__ import annotations

from collections.abc import Iterable

from lakelog.engine import Engine
from lakelog.errors import GroupNotFound
from lakelog.model.dead_letters import DeadLetterQuery
from lakelog.model.fetch import FetchLimits
from lakelog.model.kinds import DeadLetterState
from lakelog.model.position import AtOffset
from lakelog.model.topic import Topic
from prove.history.lease_lines import UNRESPONSIVE
from prove.history.tables import CallOutcome, ReaderKind
from prove.simulation.clients import SimulatedWorld
from prove.simulation.facts import SimulatedProcess, hashed, identified

_FIGURES = ("leased", "waiting", "skipped", "acked", "dead", "discarded", "filtered", "expired", "cut")


class SimulatedTruth:
    """Reads the final state."""

    def __init__(self, world: SimulatedWorld, engine: Engine) -> None:
        self._world = world
        self._facts = world.facts
        self._engine = engine
        self._process = SimulatedProcess(world.facts, "truth")
        self._hashes: dict[tuple[str, int, int], int] = {}

    async def tell(self, groups: tuple[str, ...]) -> None:
        for name in self._world.plan.topics:
            await self._read(name)
        for group in groups:
            await progress(self._world, self._engine, group, self._process, final=True)
            await self._dead(group)

    async def _read(self, name: str) -> None:
        described = await self._engine.topics.describe(self._world.scope, name)
        for partition, head in enumerate(described.heads):
            at = head.log_start
            row = self._facts.invoke(
                "read",
                self._process,
                topic=self._facts.id(name),
                partition=partition,
                offset=at,
                reader=int(ReaderKind.FINAL),
                first=at,
            )
            while at < head.next_offset:
                at = await self._read_on(name, partition, at)
            self._facts.complete(
                row,
                CallOutcome.OK,
                count=at - head.log_start,
                log_start=head.log_start,
                high_watermark=head.next_offset,
            )

    async def _read_on(self, name: str, partition: int, at: int) -> int:
        wanted = FetchLimits(max_messages=1000)
        fetched = await self._engine.fetcher.fetch(self._world.scope, name, partition, AtOffset(at), wanted)
        facts = self._facts
        for batch in fetched.batches:
            for offset, message in enumerate(facts.messages(bytes(batch.payload)), batch.base):
                if not at <= offset < fetched.until:
                    continue
                found = self._hashes[name, partition, offset] = hashed(message.value)
                facts.row(
                    "seen",
                    topic=facts.id(name),
                    partition=partition,
                    offset=offset,
                    hash=found,
                    key=hashed(message.key),
                    identity=identified(message.idempotency_key),
                    reader=int(ReaderKind.FINAL),
                    process=self._process.id,
                    completed_ns=facts.now_ns(),
                )
        return fetched.until

    async def _dead(self, group: str) -> None:
        for state in DeadLetterState:
            query = DeadLetterQuery(group=group, state=state, limit=1000)
            page = await self._engine.dead_letters.list(self._world.scope, query)
            for letter in page.letters:
                copy = -1 if letter.redriven_to is None else int(letter.redriven_to.split("-")[2])
                self._facts.row(
                    "dead",
                    topic=self._facts.id(letter.topic),
                    partition=letter.partition,
                    offset=letter.offset,
                    group=self._facts.id(group),
                    failures=letter.failures,
                    deliveries=letter.deliveries,
                    hash=0 if letter.without_message else hashed(letter.raw),
                    key=0 if letter.without_message else hashed(letter.key),
                    redriven=int(copy >= 0),
                    copy_topic=self._facts.id(letter.topic) if copy >= 0 else 0,
                    copy_partition=letter.partition if copy >= 0 else -1,
                    copy_offset=copy,
                    copy_hash=self._hashes.get((letter.topic, letter.partition, copy), 0),
                )


async def progress(
    world: SimulatedWorld, engine: Engine, group: str, process: SimulatedProcess, *, final: bool
) -> bool:
    """Record the group's progress, and return whether it has finished everything.

    Lag does not count messages that retention removed, but the committed offset passes them only with the next consume.
    Nothing is known of partitions whose cell does not respond.
    """
    facts = world.facts
    begun = {"invoked_ns": facts.now_ns(), "process": process.id, "counter": process.count(), "group": facts.id(group)}
    try:
        parts = await engine.groups.lag(world.scope, group)
    except GroupNotFound:
        return False
    moved = world.plan.seeks or world.plan.max_count is not None
    starts = await _starts(world, engine, group, dict.fromkeys(part.topic for part in parts)) if moved else {}
    known = [part for part in parts if part.status != UNRESPONSIVE]
    for part in known:
        row = facts.row(
            "progress",
            **begun,
            topic=facts.id(part.topic),
            partition=part.partition,
            final=final,
            epoch=part.epoch,
            start=starts.get((part.topic, part.partition), 0),
            committed=part.committed,
            frontier=part.frontier,
            high_watermark=part.high_watermark,
            **{name: getattr(part, name) for name in _FIGURES},
        )
        facts.complete(row, CallOutcome.OK)
    ended = all(part.lag == 0 and part.committed == part.high_watermark for part in known)
    return ended and len(known) == sum(world.plan.topics.values())


async def _starts(
    world: SimulatedWorld, engine: Engine, group: str, topics: Iterable[str]
) -> dict[tuple[str, int], int]:
    found = await engine.group_directory.resolve(world.scope, group, create=False)
    starts: dict[tuple[str, int], int] = {}
    for name in topics:
        topic: Topic = await engine.topics.find(world.scope, name)
        group_topic = await engine.group_directory.group_topic(found, topic)
        states = await engine._journals.states(found, topic, group_topic, range(topic.partitions))
        starts.update({(name, partition): state.start for partition, state in enumerate(states)})
    return starts
