"""Members join, leave and die under load: other members are not affected, and partitions are soon reassigned."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from tests.kit.async_http import JsonConnection, Refused
from tests.kit.fleet import Fleet
from tests.kit.postgres import Cluster
from tests.kit.size import Size
from tests.kit.waiting import eventually_async

CONVERGED_SECONDS = 1.5
PAUSE_SECONDS = 1.0
CI_FACTOR = 10
"""At ci size, on a shared machine, the times only need the right order of magnitude; the full size checks them."""
TOPIC, GROUP = "orders", "billing"


@dataclass(eq=False)
class Member:
    """One member: sends heartbeats, waits in long polls, acks its messages, and notes when it learnt about changes."""

    name: str
    port: int
    session_ms: int
    evictions: int = 0
    """How often the group evicted it because this machine was too busy for its heartbeats; it joins again."""
    assigned: frozenset[int] = frozenset()
    generation: int = 0
    heard_at: float = 0.0
    beat_at: float = 0.0
    deliveries: list[tuple[int, float, float]] = field(default_factory=list)
    """(partition, published, delivered)"""
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    connections: list[JsonConnection] = field(default_factory=list)

    async def join(self) -> None:
        calls, polls = JsonConnection(self.port), JsonConnection(self.port)
        self.connections += [calls, polls]
        await self._enter(calls)
        self.beats = asyncio.Lock()
        self.tasks = [asyncio.create_task(self._beat(calls)), asyncio.create_task(self._work(calls, polls))]

    async def _enter(self, calls: JsonConnection) -> None:
        session = {"session_timeout_ms": self.session_ms, "start_from": "earliest"}
        ask = {"member_id": self.name, "topics": [TOPIC], **session}
        self._hear(await calls.call("POST", f"/v1/groups/{GROUP}/join", ask))
        self.beat_at = time.monotonic()

    async def leave(self) -> None:
        await self._end()
        connection = JsonConnection(self.port)
        await connection.call("POST", f"/v1/groups/{GROUP}/leave", {"member_id": self.name})
        connection.close()

    async def die(self) -> None:
        """End without leaving: its connections break."""
        await self._end()

    async def _end(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        for connection in self.connections:
            connection.close()

    def _hear(self, answer: dict[str, object]) -> None:
        assigned = answer["assigned_partitions"]
        assert isinstance(assigned, dict)
        self.generation = int(str(answer["generation"]))
        self.assigned = frozenset(assigned.get(TOPIC, ()))
        self.heard_at = time.monotonic()

    async def _heartbeat(self, calls: JsonConnection) -> None:
        async with self.beats:
            began = time.monotonic()
            body = {"member_id": self.name, "generation": self.generation}
            try:
                self._hear(await calls.call("POST", f"/v1/groups/{GROUP}/heartbeat", body))
            except Refused as refusal:
                assert refusal.code == "unknown_member", refusal
                self.evictions += 1
                await self._enter(calls)
            self.beat_at = began

    async def _beat(self, calls: JsonConnection) -> None:
        while True:
            await asyncio.sleep(self.session_ms / 4000)
            await self._heartbeat(calls)

    async def _work(self, calls: JsonConnection, polls: JsonConnection) -> None:
        while True:
            ask = {
                "topic": TOPIC,
                "group": GROUP,
                "owner": self.name,
                "member_id": self.name,
                "generation": self.generation,
                "max_messages": 200,
                "wait_ms": 10_000,
                "isolates": True,
            }
            try:
                got = await polls.call("POST", "/v1/consume", ask)
            except Refused as refusal:
                assert refusal.code in ("stale_generation", "unknown_member"), refusal
                await self._heartbeat(calls)
                continue
            now = time.monotonic()
            answers = [
                {
                    "verb": "ack",
                    "partition": lease["partition"],
                    "token": lease["token"],
                    "offsets": [message["offset"] for message in lease["messages"]],
                }
                for lease in got["leases"]
            ]
            for lease in got["leases"]:
                self.deliveries += [(lease["partition"], m["value"]["at"], now) for m in lease["messages"]]
            if answers:
                said = await polls.call(
                    "POST", f"/v1/topics/{TOPIC}/groups/{GROUP}/answers", {"owner": self.name, "answers": answers}
                )
                assert all(result.get("ok") for result in said["results"]), said
            if got.get("generation") != self.generation:
                await self._heartbeat(calls)


async def publish(port: int, partitions: int) -> None:
    """Publish two messages a second to each partition."""
    connection = JsonConnection(port)
    turn, rounds = 0, 10
    began = time.monotonic()
    try:
        while True:
            chosen = range(turn % rounds, partitions, rounds)
            messages = [{"value": {"at": time.monotonic()}, "partition": partition} for partition in chosen]
            await connection.call("POST", f"/v1/topics/{TOPIC}/messages", {"messages": messages})
            turn += 1
            await asyncio.sleep(max(0.0, began + turn * 0.5 / rounds - time.monotonic()))
    finally:
        connection.close()


def is_balanced(members: Sequence[Member], partitions: int) -> bool:
    """S17: each partition has one member, as the members know it, and shares differ by at most one."""
    sizes = [len(member.assigned) for member in members]
    held = {partition for member in members for partition in member.assigned}
    return sum(sizes) == len(held) == partitions and max(sizes) - min(sizes) <= 1


async def balanced_after(members: Sequence[Member], partitions: int, since: float) -> float:
    """Return how long after `since` the last member learnt its balanced assignment."""
    deadline = time.monotonic() + 15
    while not is_balanced(members, partitions):
        assert time.monotonic() < deadline, [(member.name, len(member.assigned)) for member in members]
        await asyncio.sleep(0.01)
    return max(0.0, max(member.heard_at for member in members if member.heard_at) - since)


async def rebalances(port: int) -> int:
    connection = JsonConnection(port)
    try:
        return int((await connection.call("GET", f"/v1/groups/{GROUP}"))["rebalances"])
    finally:
        connection.close()


@asynccontextmanager
async def crew(fleet: Fleet, count: int, partitions: int, session_ms: int) -> AsyncIterator[list[Member]]:
    """Run members in their polls while messages arrive, and end all members of the list."""
    members = [Member(f"m{number}", fleet.ports[number % 2], session_ms) for number in range(count)]
    publishing = asyncio.create_task(publish(fleet.ports[0], partitions))
    try:
        for member in members:
            await member.join()
        yield members
        for task in [publishing, *(task for member in members for task in member.tasks)]:
            if task.done():
                task.result()
    finally:
        publishing.cancel()
        await asyncio.gather(publishing, return_exceptions=True)
        for member in members:
            with contextlib.suppress(Exception):
                await member.die()


def longest_delay(members: Sequence[Member], unaffected: set[int], since: float) -> float:
    """Return the longest time from publish to delivery in partitions whose member did not change; 0 without one."""
    delays = [
        delivered - published
        for member in members
        for partition, published, delivered in member.deliveries
        if partition in unaffected and published >= since
    ]
    return max(delays, default=0.0)


async def settled(members: Sequence[Member]) -> None:
    """Run a quiet second in which all members work."""
    before = sum(len(member.deliveries) for member in members)
    await asyncio.sleep(1.0)
    await eventually_async(lambda: sum(len(member.deliveries) for member in members) > before)


def kept(before: dict[int, str], members: Sequence[Member]) -> set[int]:
    after = owners(members)
    return {partition for partition, name in before.items() if after.get(partition) == name}


def owners(members: Sequence[Member]) -> dict[int, str]:
    return {partition: member.name for member in members for partition in member.assigned}


def test_join_leave_and_death_rebalance_quickly_and_affect_no_other_member(cluster: Cluster, size: Size) -> None:
    """S17, S18: balanced 1.5 s after a join, a leave and an eviction; unaffected partitions never pause a second."""
    partitions, session_ms = size.pick(ci=90, full=900), size.pick(ci=5000, full=2000)

    async def scenario(fleet: Fleet) -> None:
        async with crew(fleet, 10, partitions, session_ms) as members:
            await balanced_after(members, partitions, 0.0)
            await settled(members)
            changes, before_rebalances = 0, await rebalances(fleet.ports[0])
            for change in ("join", "leave", "death"):
                before, began = owners(members), time.monotonic()
                since = began
                if change == "join":
                    members.append(Member("m10", fleet.ports[1], session_ms))
                    await members[-1].join()
                elif change == "leave":
                    await members.pop(3).leave()
                else:
                    victim = members.pop(5)
                    await victim.die()
                    since = victim.beat_at + session_ms / 1000
                changes += 1
                took = await balanced_after(members, partitions, since)
                await settled(members)
                unaffected = kept(before, members)
                delay = await eventually_async(lambda: longest_delay(members, unaffected, began))  # noqa: B023
                print(f"{change}: balanced after {took:.2f} s, longest delay elsewhere {delay:.2f} s")
                assert took < CONVERGED_SECONDS * size.pick(ci=CI_FACTOR, full=1), change
                assert delay < PAUSE_SECONDS * size.pick(ci=CI_FACTOR, full=1), change
            changes += 2 * sum(member.evictions for member in members)
            assert await rebalances(fleet.ports[1]) - before_rebalances <= 2 * changes

    with Fleet(cluster) as fleet:
        fleet.create_topic(TOPIC, partitions)
        asyncio.run(scenario(fleet))


@pytest.mark.nightly
def test_members_that_come_and_go_all_the_time_converge(cluster: Cluster, size: Size) -> None:
    """S18: 64 members, one joining or leaving every 200 ms; balanced 1.5 s after the last change."""
    partitions = 128
    count = size.pick(ci=16, full=64)
    seconds, session_ms = size.pick(ci=5, full=60), size.pick(ci=5000, full=2000)
    dice = random.Random(7)

    async def scenario(fleet: Fleet) -> None:
        async with crew(fleet, count, partitions, session_ms) as members:
            await balanced_after(members, partitions, 0.0)
            before, changes, away = await rebalances(fleet.ports[0]), 0, list[Member]()
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                await asyncio.sleep(0.2)
                if away and dice.random() < 0.5:
                    member = Member(away.pop().name, dice.choice(fleet.ports), session_ms)
                    members.append(member)
                    await member.join()
                else:
                    member = members.pop(dice.randrange(len(members)))
                    away.append(member)
                    await member.leave()
                changes += 1
            took = await balanced_after(members, partitions, time.monotonic())
            rises = await rebalances(fleet.ports[1]) - before
            print(f"{changes} changes, {rises} rebalances, converged {took:.2f} s after the last")
            assert took < CONVERGED_SECONDS * size.pick(ci=CI_FACTOR, full=1)
            assert rises <= 2 * (changes + 2 * sum(member.evictions for member in [*members, *away]))

    with Fleet(cluster) as fleet:
        fleet.create_topic(TOPIC, partitions)
        asyncio.run(scenario(fleet))
