"""How long idle sources of one query wait."""

from __future__ import annotations

from lakelog.spark.streaming.idle_wait import ALONE_SECONDS, SHARED_SECONDS, IdleWait

POLL = 0.01
"""How long Spark waits before it asks the sources of an idle query again."""


class Query:
    """An idle query that asks its sources in turn."""

    def __init__(self, *fixed_ms: int | None) -> None:
        self.now = 0.0
        self.sources = [IdleWait(each, lambda: self.now) for each in fixed_ms]

    def poll(self) -> list[float]:
        """Return how long each source has waited."""
        waits = []
        for source in self.sources:
            waits.append(source.begin())
            self.now += waits[-1]
            source.end_idle()
        self.now += POLL
        return waits


def test_the_only_source_waits_long() -> None:
    query = Query(None)
    assert [query.poll() for _ in range(3)] == [[ALONE_SECONDS]] * 3


def test_several_sources_notice_each_other_and_wait_a_short_time() -> None:
    query = Query(None, None, None)
    query.poll()
    query.poll()
    assert [query.poll() for _ in range(3)] == [[SHARED_SECONDS] * 3] * 3


def test_an_option_fixes_the_wait() -> None:
    query = Query(0, 20)
    assert [query.poll() for _ in range(3)] == [[0.0, 0.02]] * 3


def test_a_micro_batch_of_the_source_itself_says_nothing_about_others() -> None:
    query = Query(None)
    query.sources[0].begin()
    query.now += 10
    assert query.poll() == [ALONE_SECONDS]
