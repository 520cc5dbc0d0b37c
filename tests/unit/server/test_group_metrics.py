"""Metrics of groups: the figures of `describe`, by environment, once over all servers, and bounded."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from lakelog.engine.groups import silence
from lakelog.engine.groups.figures import Figures, GroupFigures, GroupTopicFigures
from lakelog.model.stuck import StuckCode
from lakelog.model.token import Right
from lakelog.server import Drain, group_metrics
from lakelog.server.group_metrics import GroupMetrics, render
from lakelog.server.group_routing import GroupRouting
from lakelog.server.metrics import MULTIPROCESS, Metrics
from tests.unit.server.harness import ALL, World, world
from tests.unit.server.test_stuck import HOURS, Group, group

JOBS = '{group="billing",topic="jobs"}'


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_metrics, "KEEP_SECONDS", -1.0)


def series(page: str) -> dict[str, float]:
    return {name: float(value) for name, value in re.findall(r"^(lakelog\S+) (\S+)$", page, re.MULTILINE)}


async def scrape(made: World, token: str = "") -> dict[str, float]:
    reply = await made.call("GET", "/v1/metrics", token=token or await made.make_token(frozenset({Right.METRICS})))
    assert reply.status == 200, reply.body
    return series(reply.body.decode())


async def _work(made: Group) -> None:
    await made.join()
    await made.publish(5)
    for _ in range(3):
        await made.consume()
    await made.answer("ack", 0)
    await made.answer("nack", 1, delay_ms=HOURS)
    made.wait(7)


async def test_the_series_are_the_figures_of_the_description() -> None:
    async with group(partitions=2) as made:
        await _work(made)
        found = await scrape(made.made)
        described = (await made.made.call("GET", "/v1/groups/billing")).json
        progress = described["progress"]
        assert found[f"lakelog_group_lag_messages{JOBS}"] == sum(each["lag"] for each in progress) == 4
        assert found[f"lakelog_group_leased_messages{JOBS}"] == sum(each["leased"] for each in progress) == 1
        assert found[f"lakelog_group_waiting_messages{JOBS}"] == sum(each["waiting"] for each in progress) == 1
        assert found[f"lakelog_group_oldest_seconds{JOBS}"] == 7
        assert found['lakelog_group_members{group="billing"}'] == len(described["members"]) == 1
        assert found['lakelog_group_rebalances_total{group="billing"}'] == described["rebalances"] == 1
        assert found['lakelog_group_rebalancing_seconds_total{group="billing"}'] == 0
        assert found['lakelog_group_dead_letters{group="billing"}'] == 0
        await made.answer("nack", 2, kind="fatal")
        assert (await scrape(made.made))['lakelog_group_dead_letters{group="billing"}'] == 1


async def test_causes_are_those_of_the_description() -> None:
    async with group() as made:
        await made.publish(2)
        assert (await scrape(made.made)).keys() == {"lakelog_group_series_left_out"}
        await made.consume()
        name = 'lakelog_group_stuck_partitions{code="%s",group="billing",topic="jobs"}'
        assert name % StuckCode.HUNG_HANDLER not in await scrape(made.made)
        # The partition has the status `working`: only its leases show that the owner hangs.
        made.wait(601)
        assert (await scrape(made.made))[name % StuckCode.HUNG_HANDLER] == 1
        await made.made.call("POST", "/v1/groups/billing/pause", json={})
        assert (await scrape(made.made))[name % StuckCode.PAUSED] == 1


async def test_what_retention_removed_is_no_lag() -> None:
    async with group() as made:
        await made.consume()
        await made.publish(5)
        assert (await scrape(made.made))[f"lakelog_group_lag_messages{JOBS}"] == 5
        assert (await made.made.call("POST", "/v1/topics/jobs/purge")).status == 200
        found = await scrape(made.made)
        assert found[f"lakelog_group_lag_messages{JOBS}"] == found[f"lakelog_group_oldest_seconds{JOBS}"] == 0


async def test_a_token_reads_its_own_environment_only() -> None:
    async with world() as made:
        for name, (project, environment) in {
            "secret-1": ("default", "other"),
            "secret-2": ("other", "default"),
        }.items():
            scope = await made.other_scope(project, environment)
            token = await made.make_token(ALL, scope=scope)
            assert (await made.call("POST", "/v1/topics", json={"name": name}, token=token)).status == 201
            ask = {"topic": name, "group": name, "owner": "w1"}
            assert (await made.call("POST", "/v1/consume", json=ask, token=token)).status == 200
            found = await scrape(made, await made.make_token(frozenset({Right.METRICS}), scope=scope))
            assert {each.partition("{")[2].split('"')[1] for each in found if "{" in each} == {name}
        assert (await scrape(made)).keys() == {"lakelog_group_series_left_out"}
        public = (await made.call("GET", "/metrics", token=None)).body
        assert b"secret" not in public


async def test_each_group_is_reported_by_one_server_and_its_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world() as made:
        for name in range(20):
            ask = {"topic": "orders", "group": f"g{name}", "owner": "w1"}
            assert (await made.call("POST", "/v1/consume", json=ask)).status == 200
        routings = []
        for server in ("a", "a", "b"):
            monkeypatch.setenv(MULTIPROCESS, f"/tmp/{server}")
            routings.append(GroupRouting(made.engine.catalog.groups, "127.0.0.1:1", Drain(), Metrics()))
        for routing in (*routings, *routings):
            await routing._beat()
        whole = await scrape(made)
        pages = []
        for server, routing in (("a", routings[0]), ("a", routings[1]), ("b", routings[2])):
            monkeypatch.setenv(MULTIPROCESS, f"/tmp/{server}")
            made.app._handlers["group_metrics"] = GroupMetrics(made.engine, routing).page
            pages.append(await scrape(made))
        assert pages[0] == pages[1], "any worker process answers for its server"
        counts = Counter(name for page in pages[1:] for name in page if "{" in name)
        assert counts == dict.fromkeys((name for name in whole if "{" in name), 1)
        assert all(len(page) > 20 for page in pages)


def test_the_series_are_bounded_and_those_left_out_are_counted() -> None:
    some: dict[str, Any] = {"group_id": 1, "oldest_seconds": 0, "leased": 0, "waiting": 0, "stuck": {}, "finished": 0}
    topics = [
        GroupTopicFigures(group="g", topic=f"t{n}", incarnation=n, lag=n, lags=[n], is_whole=True, **some)
        for n in range(10)
    ]
    groups = [GroupFigures(group="g", members=1, dead_letters=0, rebalances=0, rebalancing_seconds=0)]
    found = series(render(Figures(groups=groups, topics=topics), most=20).decode())
    assert len(found) == 21
    assert found["lakelog_group_series_left_out"] == 4 + 40 - 20


async def test_a_page_is_read_once_in_a_few_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_metrics, "KEEP_SECONDS", 60.0)
    async with group() as made:
        token = await made.made.make_token(frozenset({Right.METRICS}))
        before = await scrape(made.made, token)
        made.now += timedelta(seconds=3)
        await made.consume()
        assert await scrape(made.made, token) == before


@pytest.mark.parametrize("is_home", [False, True])
async def test_a_cell_that_does_not_respond_is_a_cause_and_hides_no_other_group(
    is_home: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silence, "SILENT_SECONDS", 0.05)
    async with group(partitions=2, cells=2) as made:
        await made.consume()
        await made.publish(3, partition=0)
        topic = (await made.made.engine.topics.describe(made.made.scope, "jobs")).topic
        billing = (await made.made.engine.catalog.groups.group_list(made.made.scope))[0]
        dead = billing.cell if is_home else 1 - billing.cell

        async def silent(*_: object) -> None:
            await asyncio.Event().wait()

        for read in ("clock", "heads_read"):
            monkeypatch.setattr(made.made.engine.cells[dead], read, silent)
        found = await scrape(made.made)
        name = f'lakelog_group_stuck_partitions{{code="{StuckCode.UNRESPONSIVE_CELL}",group="billing",topic="jobs"}}'
        assert found[name] == (2 if is_home else 1)
        assert found[f"lakelog_group_lag_messages{JOBS}"] == (0 if topic.cells[0] == dead else 3)
        assert ('lakelog_group_members{group="billing"}' in found) is not is_home
        listed = (await made.made.call("GET", "/v1/groups")).json["groups"]
        assert [each["status"] for each in listed] == ["unresponsive"]
