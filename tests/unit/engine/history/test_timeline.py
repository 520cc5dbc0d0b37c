"""The history of a group: samples that agree with its description, and points in a resolution that fits the time."""

from __future__ import annotations

from datetime import timedelta

import pytest

from lakelog.engine.history.timeline import MAX_POINTS, span_of
from lakelog.errors import InvalidRequest, TopicNotFound
from lakelog.maintenance.history_sampler import HistorySampler
from lakelog.model.group import AlterGroupRequest
from lakelog.model.history import GroupHistory, HistoryQuery
from lakelog.model.lease import LeaseAnswer, Verb
from lakelog.model.position import Earliest
from lakelog.storage.history import Resolution
from tests.unit.engine.groups.test_summaries import Shop, shop
from tests.unit.engine.support import Clock, publish, text


async def history(made: Shop, group: str = "billing", **asked: object) -> GroupHistory:
    return await made.engine.timeline.read(made.scope, HistoryQuery(group=group, **asked))  # type: ignore[arg-type]


async def test_points_are_the_figures_of_the_description_with_the_throughput_between_them() -> None:
    async with shop() as made:
        leases = await made.lease("billing", 24)
        assert await made.engine.sampler.sample() == 1
        assert await made.engine.sampler.sample() == 0, "the minute has a sample"
        await made.answer("billing", leases, Verb.ACK, 3)
        await publish(made.engine, made.scope, "orders", text("x", partition=2))
        made.clock.pass_by(minutes=1)
        await made.engine.sampler.sample()
        first, second = (await history(made, "billing", topic="orders", partitions=True)).points
        assert (first.lag, first.leased, first.done_per_second) == (24, 24, None)
        described = await made.engine.groups.describe(made.scope, "billing")
        assert second.lag == described.lag == 13
        assert second.partition_lags == tuple(each.lag for each in described.progress) == (3, 3, 4, 3)
        assert second.done_per_second == 12 / 60
        assert second.at - first.at == timedelta(minutes=1)
        assert (await history(made)).points[1].partition_lags is None


async def test_a_list_has_the_lags_of_the_last_hour_every_five_minutes() -> None:
    async with shop() as made:
        await made.lease("billing", 24)
        minute = await made.engine.sampler.minute()
        made.clock.pass_by(minutes=5 - minute % 5)
        assert [each.lags for each in await made.engine.groups.list(made.scope)] == [None]
        assert [each.lags for each in await made.engine.groups.list(made.scope, with_lags=True)] == [()]
        for wait in (6, 4, 55):
            await made.engine.sampler.sample()
            await publish(made.engine, made.scope, "orders", text("x", partition=2))
            made.clock.pass_by(minutes=wait)
        (billing,) = await made.engine.groups.list(made.scope, with_lags=True)
        assert billing.lags == (26, *[None] * 11), "the first sample is older, and the second of another minute"
        await made.engine.sampler.sample()
        (billing,) = await made.engine.groups.list(made.scope, with_lags=True)
        assert billing.lags == (26, *[None] * 10, 27)


async def test_failures_are_those_of_the_minute_before() -> None:
    async with shop() as made:
        leases = await made.lease("billing", 24)
        await made.answer("billing", leases, Verb.NACK, 3)
        await made.engine.sampler.sample()
        made.clock.pass_by(minutes=1)
        await made.engine.sampler.sample()
        made.clock.pass_by(minutes=1)
        await made.engine.sampler.sample()
        points = (await history(made)).points
        assert [each.failed_per_second for each in points] == [0, 12 / 60, 0]


async def test_failures_of_a_group_that_keeps_no_dead_letters() -> None:
    async with shop() as made:
        await made.engine.group_directory.resolve(made.scope, "billing", create=True)
        await made.engine.groups.alter(made.scope, AlterGroupRequest(group="billing", dead_letter=False))
        for verb, count in ((Verb.FAIL, 3), (Verb.DISCARD, 1)):
            for lease in await made.lease("billing", count):
                reason = "ValueError: no total" if verb is Verb.FAIL else ""
                given = {"verb": verb, "partition": lease.partition, "token": lease.token, "reason": reason}
                answer = LeaseAnswer(**given, offsets=tuple(lease.offsets))  # type: ignore[arg-type]
                (result,) = await made.engine.leases.answer(made.scope, "orders", "billing", "ann", [answer])
                assert not isinstance(result, Exception), result
        made.clock.pass_by(minutes=1)
        await made.engine.sampler.sample()
        (point,) = (await history(made)).points
        assert point.failed_per_second == 3 / 60


async def test_a_seek_back_has_no_throughput_and_a_gap_has_none() -> None:
    async with shop() as made:
        await made.answer("billing", await made.lease("billing", 24), Verb.ACK)
        await made.engine.sampler.sample()
        await made.engine.groups.seek(made.scope, "billing", "orders", Earliest())
        made.clock.pass_by(minutes=1)
        await made.engine.sampler.sample()
        made.clock.pass_by(minutes=9)
        await made.engine.sampler.sample()
        points = (await history(made)).points
        assert [each.lag for each in points] == [0, 24, 24]
        assert [each.done_per_second for each in points] == [None, None, None]


async def test_without_a_topic_the_points_are_the_sum_of_all_topics() -> None:
    async with shop() as made:
        await publish(made.engine, made.scope, "refunds", text("r"))
        await made.lease("billing")
        await made.lease_in("refunds", "billing")
        await made.engine.sampler.sample()
        (point,) = (await history(made)).points
        assert (point.lag, point.leased) == (25, 5)
        assert [each.lag for each in (await history(made, topic="refunds")).points] == [1]
        with pytest.raises(TopicNotFound, match="does not read topic 'bills'"):
            await history(made, topic="bills")


def test_the_resolution_is_the_finest_that_is_kept_and_has_few_points() -> None:
    now = Clock().now
    spans = {days: span_of(now - timedelta(days=days), now, now) for days in (0.04, 1, 2, 9, 29, 31, 399, 900)}
    found = {days: (span.every, span.resolution) for days, span in spans.items()}
    minutes, hours = (1, Resolution.MINUTE), (60, Resolution.HOUR)
    assert found == {
        0.04: minutes,
        1: minutes,
        2: (10, Resolution.TEN_MINUTES),
        9: (10, Resolution.TEN_MINUTES),
        29: hours,
        31: hours,
        399: (1440, Resolution.HOUR),
        900: (1440, Resolution.HOUR),
    }
    assert all((span.last - span.first) // span.every <= MAX_POINTS for span in spans.values())
    late = span_of(now - timedelta(days=20, hours=1), now - timedelta(days=20), now)
    assert late.resolution is Resolution.TEN_MINUTES, "samples of a minute are kept for 2 days"
    with pytest.raises(InvalidRequest, match="`since` is after `until`"):
        span_of(now + timedelta(hours=1), now, now)


async def test_the_agent_takes_samples_and_drops_old_ones() -> None:
    async with shop() as made:
        await made.lease("billing")
        await HistorySampler(made.engine).work()
        assert len((await history(made)).points) == 1
        made.clock.pass_by(days=3)
        await HistorySampler(made.engine).work()
        assert [each.at for each in (await history(made)).points] == [made.clock.now.replace(second=0)]
        assert await made.engine.sampler.trim() == 0
