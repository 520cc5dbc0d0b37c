"""The loop in virtual time: no real waits, dead nodes do nothing, frozen nodes are late, order is kept or random."""

from __future__ import annotations

import asyncio
import itertools
import random
import time

import pytest

from prove.simulation.loop import Node, Stuck, VirtualLoop


def test_an_hour_passes_at_once() -> None:
    loop = VirtualLoop(None)
    began = time.monotonic()

    async def wait() -> float:
        await asyncio.sleep(3600)
        return loop.time()

    assert loop.run_until_complete(wait()) == 3600
    assert time.monotonic() - began < 5


def test_what_is_cancelled_does_not_happen() -> None:
    loop, done = VirtualLoop(None), list[str]()

    async def wait() -> None:
        handles = [loop.call_later(when, done.append, f"at {when}") for when in (1, 2)]
        handles[0].cancel()
        assert [(each.cancelled(), each.when()) for each in handles] == [(True, 1.0), (False, 2.0)]
        await asyncio.sleep(3)

    loop.run_until_complete(wait())

    assert done == ["at 2"]


def test_the_dead_do_nothing_not_even_on_their_way_out() -> None:
    loop = VirtualLoop(None)
    node, done = Node("server"), list[str]()

    async def work() -> None:
        try:
            await asyncio.sleep(2)
            done.append("worked")
        finally:
            done.append("cleaned up")

    async def kill() -> None:
        loop.begin(node, work())
        await asyncio.sleep(1)
        node.is_dead = True
        await asyncio.sleep(5)

    loop.run_until_complete(kill())

    assert done == []
    loop.close_unfinished()


def test_the_frozen_go_on_later_and_do_not_know() -> None:
    loop = VirtualLoop(None)
    node, done = Node("server"), list[float]()

    async def work() -> None:
        await asyncio.sleep(1)
        done.append(loop.time())

    async def freeze() -> None:
        loop.begin(node, work())
        await asyncio.sleep(0.5)
        loop.freeze(node, 10)
        await asyncio.sleep(20)

    loop.run_until_complete(freeze())

    assert done == [10.5]


def test_a_clock_never_goes_back_when_its_speed_changes() -> None:
    node = Node("server")
    times = [node.monotonic(5.0)]
    node.drift(5.0, 0.5)
    times += [node.monotonic(5.0), node.monotonic(7.0)]
    node.drift(7.0, 2.0)
    times += [node.monotonic(7.0), node.monotonic(8.0)]

    assert times == [1005.0, 1005.0, 1006.0, 1006.0, 1008.0]


def test_order_is_that_of_arrival_or_drawn() -> None:
    def run(loop: VirtualLoop) -> list[int]:
        order = list[int]()

        async def work(number: int) -> None:
            order.append(number)

        async def all_of_them() -> None:
            await asyncio.gather(*(work(number) for number in range(20)))

        loop.run_until_complete(all_of_them())
        return order

    assert run(VirtualLoop(None)) == list(range(20))
    drawn = run(VirtualLoop(random.Random(1).random))
    assert drawn != list(range(20))
    assert drawn == run(VirtualLoop(random.Random(1).random))


def test_who_waits_for_nothing_is_told() -> None:
    loop = VirtualLoop(None)

    async def wait() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Stuck, match="all nodes wait"):
        loop.run_until_complete(wait())
    loop.close_unfinished()


def test_who_goes_round_in_a_circle_is_told() -> None:
    loop = VirtualLoop(None)

    async def spin() -> None:
        for _ in itertools.count():
            await asyncio.sleep(0)

    with pytest.raises(Stuck, match="did not end"):
        loop.run_until_complete(spin())
    loop.close_unfinished()
