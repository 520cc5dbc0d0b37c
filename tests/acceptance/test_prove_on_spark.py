"""The proof as a Spark job: it gives the same verdict as a process that holds the whole run, valid or not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from prove.check_command import overall
from prove.checker.judgement import CheckVerdict, judge
from prove.checker.spark_job import judge_on
from prove.history.lines import Got, LeaseSeen, Line
from prove.history.loading import HISTORY
from prove.history.recorder import Attempt, HistoryRecorder, PublishedAt
from prove.history.synthetic import GROUP, TOPIC, describe, make_partition
from prove.history.tables import columns, text_id
from prove.history.truth import write_truth

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLACE = (TOPIC, "readers")


def made(folder: Path, *, wrong: bool) -> Path:
    """Write a run of three partitions. If it is wrong, one process has seen what must not happen."""
    (folder / HISTORY).mkdir(parents=True)
    found = [make_partition(folder, number, 7_000) for number in range(3)]
    processes = [name for names, _ in found for name in names]
    if wrong:
        processes.append("x")
        with HistoryRecorder(folder / HISTORY, "x") as recorder:
            _see_what_must_not_be(recorder)
        letter = {"topic": text_id(TOPIC), "group": text_id(GROUP), "partition": 1, "offset": 3, "failures": 4}
        write_truth(folder, columns("dead", [letter]))
    describe(folder, processes, max(drained_ns for _, drained_ns in found))
    return folder


def _see_what_must_not_be(recorder: HistoryRecorder) -> None:
    for offset in (5_000_000, 6_000_000):
        with recorder.publish(Attempt(topic=TOPIC, value=b"twice", idempotency_key="same")) as call:
            call.ok(PublishedAt(partition=0, offset=offset))
    with recorder.fetch(TOPIC, 1, 10) as call:
        call.saw([10, 12], [77, 78], bounds=(0, 7_000))
    with recorder.fetch(TOPIC, 2, 0, reader="replay", group="again") as call:
        call.saw([0, 1], [77, 78], bounds=(0, 7_000))
    asked = Line(kind="invoke", op="consume", topic=TOPIC, group=GROUP, owner="x", lease_ms=1000)
    given = LeaseSeen(2, 10**9, 1_700_000_100_000, False, (Got(11, 2, 0), Got(12, 1, 0)))
    recorder.complete(recorder.invoke(asked), Line(kind="ok", leases=(given,)))
    recorder.complete(recorder.invoke(asked), Line(kind="info"))
    for member in ("one", "two"):
        with recorder.join(*PLACE, member) as joined:
            joined.ok(1, [0])


@pytest.mark.parametrize("wrong", [False, True])
def test_spark_judges_as_one_process_does(spark: SparkSession, tmp_path: Path, wrong: bool) -> None:
    folder = made(tmp_path / "run", wrong=wrong)
    here, there = judge(folder), judge_on(spark, folder)
    assert overall(here) is (CheckVerdict.INVALID if wrong else CheckVerdict.VALID)
    broken = {name for name, each in here.items() if each.verdict is CheckVerdict.INVALID}
    assert not wrong or {"S1", "S2", "S3", "S4", "S10", "S17", "S19"} <= broken
    for name, each in here.items():
        assert (name, there[name].verdict) == (name, each.verdict)
        assert (name, there[name].rows) == (name, each.rows)
        # Rows arrive in another order, so another of several witnesses may be named, but for the same messages.
        assert {found.place for found in there[name].violations} == {found.place for found in each.violations}


def test_a_run_that_is_not_whole_is_unknown_on_spark_too(spark: SparkSession, tmp_path: Path) -> None:
    folder = made(tmp_path / "run", wrong=False)
    torn = folder / HISTORY / "w0-0.jsonl"
    torn.write_bytes(torn.read_bytes()[:-20])
    judged = judge_on(spark, folder)
    assert {each.verdict for each in judged.values()} == {CheckVerdict.UNKNOWN}
    assert "w0-0.jsonl" in judged["S1"].doubts[0]
    assert overall(judge_on(spark, tmp_path)) is CheckVerdict.UNKNOWN
