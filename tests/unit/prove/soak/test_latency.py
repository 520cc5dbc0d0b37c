"""Latencies from real histories: publishes by their calls, deliveries from the publish of the same message."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from prove.history.lines import Got, LeaseSeen, Line
from prove.history.recorder import Attempt, HistoryRecorder, PublishedAt
from prove.soak.latency import measure

MS = 1_000_000
BEGAN = 5_000 * MS


class Clock:
    """A clock that does not advance by itself."""

    def __init__(self) -> None:
        self.ms = 0

    def __call__(self) -> int:
        return BEGAN + self.ms * MS


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "history").mkdir()
    return tmp_path


def publish(recorder: HistoryRecorder, clock: Clock, offsets: range, *, began: int, ended: int) -> None:
    clock.ms = began
    attempts = [Attempt(topic="orders", value=str(each).encode()) for each in offsets]
    with recorder.publish(*attempts) as call:
        clock.ms = ended
        call.each([PublishedAt(partition=1, offset=each, duplicate=False) for each in offsets])


def deliver(recorder: HistoryRecorder, clock: Clock, offsets: Iterator[int], *, at: int, number: int = 1) -> None:
    clock.ms = at
    first = recorder.invoke(Line(kind="invoke", op="consume", topic="orders", group="billing", owner="w", lease_ms=1))
    messages = tuple(Got(each, number) for each in offsets)
    lease = LeaseSeen(1, 1, 0, False, messages)
    recorder.complete(first, Line(kind="ok", leases=(lease,)))


def test_waits_are_measured_by_call_and_by_message(folder: Path, clock: Clock) -> None:
    with HistoryRecorder(folder / "history", "producer-1", clock=clock) as recorder:
        publish(recorder, clock, range(2), began=100, ended=110)
        publish(recorder, clock, range(2, 3), began=10_000, ended=10_030)
    with HistoryRecorder(folder / "history", "billing-2", clock=clock) as recorder:
        deliver(recorder, clock, iter([0, 1]), at=150)
        # A repeat, which says nothing about the latency, and one without a recorded publish.
        deliver(recorder, clock, iter([0]), at=900, number=2)
        deliver(recorder, clock, iter([7]), at=950)
        deliver(recorder, clock, iter([2]), at=10_500)
    found = measure(folder, (("producer",), ("billing",)), BEGAN)
    assert sorted(found.publish.took.tolist()) == [10.0, 10.0, 30.0]
    assert sorted(found.delivery.took.tolist()) == [50.0, 50.0, 500.0]
    first, second = found.windows(20.0)
    assert (first.publish_p50, first.delivery_p99, second.publish_p99) == (10.0, 50.0, 30.0)


def test_other_producers_do_not_count(folder: Path, clock: Clock) -> None:
    with HistoryRecorder(folder / "history", "peak-1", clock=clock) as recorder:
        publish(recorder, clock, range(2), began=0, ended=1)
    found = measure(folder, (("producer",), ("billing",)), BEGAN)
    assert not len(found.publish.took) and not len(found.delivery.took)
    assert found.windows(10.0)[0].publish_p99 == -1.0


def test_what_waited_while_the_machine_was_taken_away_is_left_out(folder: Path, clock: Clock) -> None:
    with HistoryRecorder(folder / "history", "producer-1", clock=clock) as recorder:
        for offset, began in enumerate((0, 25_000, 31_000, 39_000, 41_000)):
            publish(recorder, clock, range(offset, offset + 1), began=began, ended=began + 10)
    with HistoryRecorder(folder / "history", "billing-2", clock=clock) as recorder:
        deliver(recorder, clock, iter([0]), at=29_999)
        deliver(recorder, clock, iter([1]), at=30_001)
        deliver(recorder, clock, iter([4]), at=42_000)
    roles = (("producer",), ("billing",))
    whole = measure(folder, roles, BEGAN)
    assert (len(whole.publish.at), len(whole.delivery.at)) == (5, 3)
    # It ends at 30 s, and clients have caught up at 40 s.
    latency = measure(folder, roles, BEGAN, [(BEGAN + 30_000 * MS, BEGAN + 30_000 * MS)])
    assert latency.publish.at.tolist() == pytest.approx([0.01, 25.01, 41.01])
    assert latency.delivery.at.tolist() == pytest.approx([29.999, 42.0])
