"""Members of a cursor group, which join, read their partitions, commit by generation, leave, or stop responding."""

from __future__ import annotations

from functools import partial
from typing import Any

from lakelog.engine import Engine
from lakelog.errors import LakelogError, OffsetOutOfRange
from lakelog.model.fetch import FetchLimits
from lakelog.model.group import GroupKind
from lakelog.model.membership import HeartbeatRequest, JoinRequest, LeaveRequest, Membership
from lakelog.model.position import AtOffset
from lakelog.model.seek import CommitRequest, PartitionOffset
from prove.history.tables import CallOutcome, MemberEvent, ReaderKind
from prove.simulation.clients import SimulatedClient, SimulatedWorld
from prove.simulation.facts import Row, SimulatedProcess, hashed, outcome_of
from prove.simulation.network import CallLost
from prove.simulation.plan import CURSOR_GROUP

_SESSION_MS = 2000


class SimulatedMember(SimulatedClient):
    role = "member"

    def __init__(self, world: SimulatedWorld, topic: str) -> None:
        super().__init__(world)
        self.topic = topic
        self._joins = self._begun = 0
        self._name = ""
        self._generation = 0
        self._read: dict[int, int] = {}
        """Next offset to read, by assigned partition."""
        self._readers: dict[int, SimulatedProcess] = {}
        """The reader's name in the history. Each assignment of a partition gets a new name."""
        self._given_up: list[tuple[int, int]] = []
        """Lost partitions, each with the generation of its loss. Commits in these partitions are outdated."""

    async def run(self) -> None:
        while not self.world.is_draining:
            self._joins += 1
            self._name, self._read = f"{self.process.name}.{self._joins}", {}
            if await self._join():
                for _ in range(self.chance.choice((3, 6, 30))):
                    await self.rest(1.0)
                    if self.world.is_draining or not await self._heartbeat():
                        break
                    for partition in list(self._read):
                        await self._work(partition)
                await self._leave()
            await self.rest(0.5)

    # Membership ---------------------------------------------------------------------------------------------------

    def _row(self, event: MemberEvent, **columns: Any) -> Row:
        facts = self.facts
        return facts.invoke(
            "member",
            self.process,
            topic=facts.id(self.topic),
            group=facts.id(CURSOR_GROUP),
            member=facts.id(self._name),
            event=int(event),
            **columns,
        )

    async def _join(self) -> bool:
        ask = JoinRequest(
            group=CURSOR_GROUP,
            topics=(self.topic,),
            member_id=self._name,
            session_ms=_SESSION_MS,
            kind=GroupKind.CURSOR,
            start_from="earliest",
        )
        row = self._row(MemberEvent.JOIN)
        told = await self._ask(row, lambda engine: engine.members.join(self.world.scope, ask))
        if told is None:
            return False
        row["generation"] = told.generation
        self._apply_assignment(told, row)
        return True

    async def _heartbeat(self) -> bool:
        """Send a heartbeat. Return False if the reply says that this is no longer a member."""
        begun = {"invoked_ns": self.facts.now_ns()}
        request = HeartbeatRequest(group=CURSOR_GROUP, member_id=self._name, generation=self._generation)
        try:
            told: Membership = await self.call(lambda engine: engine.members.heartbeat(self.world.scope, request))
        except CallLost:
            return True
        except LakelogError as error:
            return outcome_of(error) is CallOutcome.INFO
        self._apply_assignment(told, begun)
        return True

    async def _leave(self) -> None:
        row = self._row(MemberEvent.LEAVE, generation=self._generation)
        request = LeaveRequest(group=CURSOR_GROUP, member_id=self._name)
        await self._ask(row, lambda engine: engine.members.leave(self.world.scope, request))

    async def _ask(self, row: Row, request: Any) -> Any:
        try:
            told = await self.call(request)
        except (CallLost, LakelogError) as error:
            self.facts.complete(row, outcome_of(error))
            return None
        self.facts.complete(row, CallOutcome.OK)
        return told

    def _apply_assignment(self, told: Membership, asked: Row) -> None:
        """Apply an assignment. Release the partitions that are no longer in it immediately."""
        if told.generation < self._generation:
            return  # An older response that came late.
        assigned = [*told.assigned.get(self.topic, ())]
        for partition in assigned:
            self._note(MemberEvent.ASSIGNED, partition, told.generation, asked)
        for partition in [each for each in self._read if each not in assigned]:
            self._given_up.append((partition, self._generation))
            del self._read[partition]
            self._note(MemberEvent.REVOKED, partition, told.generation, asked)
        self._read.update({partition: -1 for partition in assigned if partition not in self._read})
        self._generation = told.generation
        self.facts.say(f"{self._name} has {assigned} in generation {told.generation}")

    def _note(self, event: MemberEvent, partition: int, generation: int, asked: Row) -> None:
        row = self._row(event, partition=partition, generation=generation)
        row["invoked_ns"] = asked["invoked_ns"]
        self.facts.complete(row, CallOutcome.OK)

    # Reading ------------------------------------------------------------------------------------------------------

    async def _work(self, partition: int) -> None:
        at = self._read.get(partition)
        if at is not None and at < 0:
            at = await self._position(partition)
            self._begun += 1
            self._readers[partition] = SimulatedProcess(self.facts, f"{self.process.name}-reader-{self._begun}")
        if at is None:
            return
        end = await self._fetch(partition, at)
        if partition in self._read:
            self._read[partition] = end
            await self._commit(partition, end, self._generation)
        if self._given_up and self.chance.random() < 0.3:
            # Late: another member may own it.
            lost, generation = self.chance.choice(self._given_up)
            await self._commit(lost, end, generation)

    async def _position(self, partition: int) -> int | None:
        scope, topic = self.world.scope, self.topic
        try:
            found = await self.call(lambda engine: engine.groups.positions(scope, CURSOR_GROUP, topic))
        except (CallLost, LakelogError):
            return None
        return int(found[partition][0]) if partition in found else 0

    async def _fetch(self, partition: int, at: int) -> int:
        facts, reader = self.facts, self._readers[partition]
        place = {"topic": self.facts.id(self.topic), "partition": partition}
        row = facts.invoke("read", reader, **place, offset=at, reader=int(ReaderKind.FETCH), first=at)
        wanted = FetchLimits(max_messages=10)
        request = partial(self._fetching, partition, AtOffset(at), wanted)
        try:
            fetched = await self.call(request)
        except OffsetOutOfRange as error:
            facts.complete(row, CallOutcome.FAIL)
            return max(at, int(error.subject.get("log_start") or 0))
        except (CallLost, LakelogError) as error:
            facts.complete(row, outcome_of(error))
            return at
        count = 0
        ends = {"log_start": fetched.log_start, "high_watermark": fetched.high_watermark}
        facts.complete(row, CallOutcome.OK, **ends)
        for batch in fetched.batches:
            for offset, message in enumerate(facts.messages(batch.payload), batch.base):
                if fetched.start <= offset < fetched.until:
                    count += 1
                    facts.row(
                        "seen",
                        **place,
                        offset=offset,
                        hash=hashed(message.value),
                        key=hashed(message.key),
                        reader=int(ReaderKind.FETCH),
                        process=reader.id,
                        counter=row["counter"],
                        completed_ns=row["completed_ns"],
                    )
        row["count"] = count
        return int(fetched.until)

    async def _fetching(self, partition: int, position: AtOffset, wanted: FetchLimits, engine: Engine) -> Any:
        return await engine.fetcher.fetch(self.world.scope, self.topic, partition, position, wanted)

    async def _commit(self, partition: int, end: int, generation: int) -> None:
        row = self._row(MemberEvent.COMMIT, partition=partition, generation=generation)
        request = CommitRequest(
            group=CURSOR_GROUP,
            topic=self.topic,
            positions=(PartitionOffset(partition=partition, offset=end),),
            member_id=self._name,
            generation=generation,
        )
        await self._ask(row, lambda engine: engine.groups.commit(self.world.scope, request))
        self.facts.say(f"{self._name} committed {partition}: {end} of generation {generation}: {row['outcome']}")
