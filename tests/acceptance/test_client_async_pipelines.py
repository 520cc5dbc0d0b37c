"""Runs of pipelines through the client: the same over every transport."""

from __future__ import annotations

import pytest

import lakelog
from lakelog.errors import InvalidName, PipelineBusy, PipelineRunOver, TopicNotFound
from lakelog.model.pipeline import RunState


async def test_a_run_is_begun_reported_and_ended(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        await log.topic("t").create()
        run = await log.pipelines.begin("tier", "t", host="here")
        assert (run.pipeline, run.topic, run.host, run.state) == ("tier", "t", "here", RunState.RUNNING)
        await log.pipelines.report(run, {"messages": 7})
        (found,) = await log.pipelines.list()
        assert (found.run_id, found.state, found.progress) == (run.run_id, RunState.RUNNING, {"messages": 7})
        ended = await log.pipelines.end(run, {"messages": 9, "segments": 1}, failed=True, detail="why")
        assert (ended.state, ended.detail) == (RunState.FAILED, "why")
        assert await log.pipelines.list("tier", "t") == [ended]
        assert await log.pipelines.list("sweep") == []
        with pytest.raises(PipelineRunOver):
            await log.pipelines.report(run, {})


async def test_a_second_run_is_refused_and_names_the_active_one(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        await log.topic("t").create()
        run = await log.pipelines.begin("tier", "t", host="first-host")
        with pytest.raises(PipelineBusy, match="first-host") as refused:
            await log.pipelines.begin("tier", "t")
        assert refused.value.run_id == run.run_id
        sweep = await log.pipelines.begin("sweep")
        assert sweep.topic is None
        await log.pipelines.end(run, {})
        assert (await log.pipelines.begin("tier", "t")).state is RunState.RUNNING
        assert [each.pipeline for each in await log.pipelines.list(limit=2)] == ["tier", "sweep"]


async def test_an_invalid_run_is_refused(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        with pytest.raises(TopicNotFound):
            await log.pipelines.begin("tier", "nothing")
        with pytest.raises(InvalidName):
            await log.pipelines.begin("Tier!")
