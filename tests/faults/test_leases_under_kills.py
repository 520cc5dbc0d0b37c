"""Leases while workers and servers are killed: S8 to S16 hold, and every message ends acked or dead, once.

Full size: 64 workers on 4 partitions, 200,000 messages of 10,000 keys, a lease of 5 s, a worker killed each second,
each server once, and some responses lost. 2026-11-15, 2 cores: 178 workers killed while they held 673 messages, 1,928
calls of unknown outcome, 2,099 dead letters; no violation.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from lakelog.model.group import Exponential
from prove.checker.invariant import GroupRules
from prove.history.recorder import HistoryRecorder
from prove.history.tables import CallOutcome
from tests.faults.crews import (
    Crew,
    Sampler,
    assert_leases_valid,
    await_drained,
    in_hand,
    lease_history,
    publish,
    settings_of,
    told,
    truth_of,
)
from tests.faults.lease_worker import Plan
from tests.kit.fleet import Fleet
from tests.kit.lease_owner import HttpOwner
from tests.kit.postgres import Cluster
from tests.kit.process import Supervisor
from tests.kit.size import Size

RETRIES = Exponential(max=4, base_seconds=0.2, max_seconds=1.0)
BAD_SHARE = 0.01
TOPIC, GROUP = "orders", "billing"


@pytest.mark.nightly
@pytest.mark.timeout(1500)
def test_every_message_ends_acked_or_dead_once(cluster: Cluster, size: Size, tmp_path: Path) -> None:
    """S8-S16, L5."""
    total, keys = size.pick(ci=4_000, full=200_000), size.pick(ci=500, full=10_000)
    lease_ms, workers = size.pick(ci=2_000, full=5_000), size.pick(ci=8, full=64)
    chance = random.Random(1)
    messages: list[tuple[str | None, str]] = [
        (f"k{chance.randrange(keys)}", f"{'bad' if chance.random() < BAD_SHARE else 'good'}-{number}")
        for number in range(total)
    ]
    folder = tmp_path / "history"
    folder.mkdir()
    with Fleet(cluster) as fleet, Supervisor() as processes:
        fleet.create_topic(TOPIC, 4)
        for seed, proxy in enumerate(fleet.proxies):
            proxy.drop_answers(probability=size.pick(ci=0.02, full=0.005), seed=seed)
        places = publish(fleet, TOPIC, messages[: total // 2])
        plan = Plan(
            topic=TOPIC,
            group=GROUP,
            ports=[proxy.port for proxy in fleet.proxies],
            name="",
            folder=str(folder),
            stop=str(tmp_path / "stop"),
            seed=0,
            settings=settings_of(RETRIES),
            lease_ms=lease_ms,
            work_ms=10,
        )
        crew = Crew(processes, plan, workers)
        sampler = Sampler(HttpOwner(HistoryRecorder(folder, "sampler"), fleet.ports, TOPIC, GROUP))
        sampler.start()
        kill(fleet, crew, sampler, lambda: places.update(publish(fleet, TOPIC, messages[total // 2 :])), total)
        await_drained(sampler, crew, total, within=size.pick(ci=60, full=300))
        crew.stop()
        sampler.stop()
        truth = truth_of(fleet, folder, TOPIC, GROUP, places, GroupRules(retries=RETRIES))
    history = lease_history(folder, truth, killed=crew.killed)
    held = in_hand(history)
    unknown, refused = told(history, CallOutcome.INFO), told(history, CallOutcome.FAIL)
    lost = sum(proxy.dropped for proxy in fleet.proxies)
    print(f"{lost} answers lost, {len(crew.killed)} workers killed while they held {held} messages")
    print(f"{unknown} calls unknown, {refused} refused")
    assert held > 0 and lost > 0
    assert_leases_valid(history)
    bad = {place for place, (_, value) in places.items() if value.startswith("bad")}
    assert {(letter.partition, letter.offset) for letter in truth.dead} == bad, "only what always fails dies"


def kill(fleet: Fleet, crew: Crew, sampler: Sampler, publish_rest: object, total: int) -> None:
    """Kill a worker each second until 90 % are done, and each server once; publish the second half in between."""
    assert callable(publish_rest)
    servers = [(0.15, 0), (0.5, 1)]
    deadline = time.monotonic() + 900
    published = False
    tick = time.monotonic()
    while (done := sum(part.finished for part in sampler.last)) < 0.9 * total:
        assert time.monotonic() < deadline, sampler.last
        crew.check()
        if servers and done >= servers[0][0] * total:
            _, server = servers.pop(0)
            fleet.servers[server].kill9()
            fleet.servers[server].restart()
        if not published and done >= 0.2 * total:
            publish_rest()
            published = True
        if time.monotonic() >= tick + 1:
            crew.kill_one()
            tick = time.monotonic()
        time.sleep(0.05)
