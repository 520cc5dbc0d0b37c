"""The recorder: the lines before and after a call, and the rows that they become."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from lakelog import errors
from prove.history.lines import Got, LeaseSeen, Line, Op, ProgressSeen, Seen, identity_of, value_hash
from prove.history.loading import History, load_files
from prove.history.recorder import Attempt, HistoryRecorder, PublishedAt
from prove.history.tables import CallOutcome, MemberEvent, OwnerVerb, ReaderKind, SampleKind, text_id

ROOT = Path(__file__).parents[4]
PLACE = ("t", "g")


def rows(history: History, table: str, *names: str) -> list[Any]:
    """Return some columns of a table as tuples, or one as numbers, in the order of the calls."""
    found = history.tables[table]
    order = found.sorted_by(*(("process", "counter") if "counter" in found.arrays else ("at_ns",)))
    columns = [order.arrays[name].tolist() for name in names]
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))


def lease_line(op: Op, **more: Any) -> Line:
    return Line(kind="invoke", op=op, topic="t", group="g", owner="w1", **more)


def test_an_attempt_is_on_disk_before_the_call_is_made(tmp_path: Path) -> None:
    with HistoryRecorder(tmp_path, "p1") as recorder:
        attempt = Attempt(topic="t", value=b"v", key="k", idempotency_key="i", producer="x", sequence=4)
        with recorder.publish(attempt) as call:
            before = load_files(tmp_path, crashed=["p1"])
            call.ok(PublishedAt(partition=3, offset=812))
    after = load_files(tmp_path)
    assert rows(before, "attempt", "outcome", "hash", "offset", "completed_ns") == [
        (CallOutcome.INFO, value_hash(b"v"), -1, 0)
    ]
    assert rows(after, "attempt", "outcome", "partition", "offset") == [(CallOutcome.OK, 3, 812)]
    known = (text_id("k"), identity_of("i"), text_id("x"), 4, -1)
    assert rows(after, "attempt", "key", "identity", "producer", "sequence", "asked_partition") == [known]
    assert rows(after, "attempt", "process", "topic") == [(text_id("p1"), text_id("t"))]
    assert {"p1", "t"} <= set(after.run.names.values())
    ((invoked, completed),) = rows(after, "attempt", "invoked_ns", "completed_ns")
    assert 0 < invoked <= completed


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (errors.TooLarge("too large"), CallOutcome.FAIL),
        (errors.IdempotencyConflict("other bytes"), CallOutcome.FAIL),
        (errors.TopicNotFound("no topic"), CallOutcome.FAIL),
        (errors.OutcomeUnknown("who knows"), CallOutcome.INFO),
        (errors.Unavailable("later"), CallOutcome.INFO),
        (errors.Overloaded("later"), CallOutcome.INFO),
        (ConnectionResetError(), CallOutcome.INFO),
        (KeyboardInterrupt(), CallOutcome.INFO),
    ],
)
def test_only_a_definite_refusal_is_fail(tmp_path: Path, error: BaseException, outcome: CallOutcome) -> None:
    attempts = [Attempt(topic="t", value=b"v"), Attempt(topic="t", value=b"w")]
    with HistoryRecorder(tmp_path, "p1") as recorder, pytest.raises(type(error)), recorder.publish(*attempts):
        raise error
    assert rows(load_files(tmp_path), "attempt", "outcome") == [outcome, outcome]


def test_a_call_whose_outcome_was_not_told_is_info(tmp_path: Path) -> None:
    with HistoryRecorder(tmp_path, "p1") as recorder, recorder.publish(Attempt(topic="t", value=b"v")):
        pass
    assert rows(load_files(tmp_path), "attempt", "outcome") == [CallOutcome.INFO]


def test_a_batch_is_one_line_and_has_an_outcome_per_message(tmp_path: Path) -> None:
    with HistoryRecorder(tmp_path, "p1") as recorder:
        with recorder.publish(*(Attempt(topic="t", value=bytes([n])) for n in range(4))) as call:
            placed = PublishedAt(partition=1, offset=5, duplicate=True)
            call.each([PublishedAt(partition=0, offset=5), placed, errors.TooLarge("x"), errors.Unavailable("y")])
        with (
            recorder.publish(Attempt(topic="t", value=b"v")) as call,
            pytest.raises(ValueError, match="2 results for 1"),
        ):
            call.ok(PublishedAt(partition=0, offset=1), PublishedAt(partition=0, offset=2))
    history = load_files(tmp_path)
    assert history.cut == ()
    assert rows(history, "attempt", "counter", "batch", "outcome", "partition", "offset", "duplicate") == [
        (0, 0, CallOutcome.OK, 0, 5, False),
        (1, 0, CallOutcome.OK, 1, 5, True),
        (2, 0, CallOutcome.FAIL, -1, -1, False),
        (3, 0, CallOutcome.INFO, -1, -1, False),
        (4, 4, CallOutcome.INFO, -1, -1, False),
    ]
    assert rows(history, "attempt", "hash")[:4] == [value_hash(bytes([n])) for n in range(4)]
    lines = (tmp_path / "p1.jsonl").read_bytes().splitlines()
    assert len(lines) == 1 + 3 + 2 + 1


def test_a_publish_has_one_topic_and_at_least_one_message(tmp_path: Path) -> None:
    with HistoryRecorder(tmp_path, "p1") as recorder:
        for attempts in ([], [Attempt(topic="t", value=b""), Attempt(topic="u", value=b"")]):
            with pytest.raises(ValueError, match="the same topic"), recorder.publish(*attempts):
                pass
    assert load_files(tmp_path).cut == ()


def test_a_fetch_keeps_what_it_saw(tmp_path: Path) -> None:
    with HistoryRecorder(tmp_path, "p1") as recorder:
        with recorder.fetch("t", 2, 10) as call:
            call.ok([Seen(10, 7, 8), Seen(11, 9)], log_start=3, high_watermark=12)
        with recorder.fetch("t", 2, 12, reader="replay", group="g") as call:
            call.saw([12], [5], identities=[6], bounds=(3, 13))
        with pytest.raises(OSError), recorder.fetch("t", 2, 13):
            raise OSError
    history = load_files(tmp_path)
    assert rows(history, "read", "partition", "offset", "first", "count", "log_start", "high_watermark", "outcome") == [
        (2, 10, 10, 2, 3, 12, CallOutcome.OK),
        (2, 12, 12, 1, 3, 13, CallOutcome.OK),
        (2, 13, -1, 0, -1, -1, CallOutcome.INFO),
    ]
    assert rows(history, "seen", "offset", "hash", "key", "identity", "reader", "group") == [
        (10, 7, 8, 0, ReaderKind.FETCH, 0),
        (11, 9, 0, 0, ReaderKind.FETCH, 0),
        (12, 5, 0, 6, ReaderKind.REPLAY, text_id("g")),
    ]


def test_a_consume_is_a_call_its_deliveries_and_what_they_showed(tmp_path: Path) -> None:
    leases = (
        LeaseSeen(0, 7, 9000, False, (Got(4, 1, 0, 44, 5), Got(6, 2, 1))),
        LeaseSeen(1, 8, 9001, True, (Got(0, 3, 2),)),
    )
    with HistoryRecorder(tmp_path, "w1") as recorder:
        recorder.complete(recorder.invoke(lease_line("consume", lease_ms=100)), Line(kind="ok", leases=leases))
        recorder.complete(recorder.invoke(lease_line("consume", generation=3)), Line(kind="info", reason="?"))
        recorder.complete(recorder.invoke(lease_line("seek")), Line(kind="ok"))
    history = load_files(tmp_path)
    assert rows(history, "call", "verb", "outcome", "partition") == [
        (OwnerVerb.CONSUME, CallOutcome.OK, -1),
        (OwnerVerb.CONSUME, CallOutcome.INFO, -1),
        (OwnerVerb.SEEK, CallOutcome.OK, -1),
    ]
    names = ("partition", "offset", "token", "number", "failures", "expires_ms", "suspect", "together")
    assert rows(history, "delivery", *names) == [
        (0, 4, 7, 1, 0, 9000, False, 3),
        (0, 6, 7, 2, 1, 9000, False, 3),
        (1, 0, 8, 3, 2, 9001, True, 3),
    ]
    assert rows(history, "delivery", "owner", "lease_ms")[0] == (text_id("w1"), 100)
    assert rows(history, "seen", "offset", "hash", "key", "reader") == [(4, 44, 5, ReaderKind.DELIVERY)]
    assert rows(history, "member", "event", "generation", "outcome") == [(MemberEvent.CONSUME, 3, CallOutcome.INFO)]


def test_an_answer_is_a_row_for_each_message(tmp_path: Path) -> None:
    with HistoryRecorder(tmp_path, "w1") as recorder:
        first = recorder.invoke(
            lease_line("ack", partition=0, token=7, offsets=(4, 6)),
            lease_line("nack", partition=0, token=7, offsets=(8, 9), delay_ms=0),
            lease_line("extend", partition=0, token=7),
        )
        recorder.complete(first, Line(kind="fail"), Line(kind="ok", dead=(9,)), Line(kind="ok", expires_ms=77))
    names = ("counter", "verb", "outcome", "offset", "delay_ms", "expires_ms", "dead")
    assert rows(load_files(tmp_path), "answer", *names) == [
        (0, OwnerVerb.ACK, CallOutcome.FAIL, 4, -1, 0, False),
        (0, OwnerVerb.ACK, CallOutcome.FAIL, 6, -1, 0, False),
        (1, OwnerVerb.NACK, CallOutcome.OK, 8, 0, 0, False),
        (1, OwnerVerb.NACK, CallOutcome.OK, 9, 0, 0, True),
        (2, OwnerVerb.EXTEND, CallOutcome.OK, -1, -1, 77, False),
    ]


def test_a_call_has_its_times_on_both_clocks(tmp_path: Path) -> None:
    clock, wall = iter([10, 20, 30, 40]).__next__, iter([5_000_000, 6_900_000, 7_000_000, 8_000_000]).__next__
    with HistoryRecorder(tmp_path, "w1", clock=clock, wall=wall) as recorder:
        recorder.complete(recorder.invoke(lease_line("seek")), Line(kind="ok"))
        recorder.invoke(lease_line("ack", partition=0, token=1, offsets=(7,)))
    names = ("invoked_ns", "completed_ns", "invoked_wall_ms", "completed_wall_ms")
    # It was closed with a call under way: what of that is known is kept.
    history = load_files(tmp_path)
    assert rows(history, "call", *names) == [(10, 20, 5, 6)]
    assert rows(history, "answer", *names) == [(30, 0, 7, 0)]
    assert history.cut == ("w1.jsonl, line 4: calls without an outcome before the end",)


def test_an_answer_for_no_message_cannot_be_told(tmp_path: Path) -> None:
    with HistoryRecorder(tmp_path, "w1") as recorder:
        recorder.complete(recorder.invoke(lease_line("ack", partition=0, token=7)), Line(kind="ok"))
    (reason,) = load_files(tmp_path).cut
    assert "answers no message" in reason


def test_progress_members_and_samples(tmp_path: Path) -> None:
    told = ProgressSeen(partition=2, epoch=1, start=0, committed=3, frontier=5, high_watermark=9, acked=3, dead=1)
    with HistoryRecorder(tmp_path, "w1") as recorder:
        recorder.complete(recorder.invoke(lease_line("progress", final=True)), Line(kind="ok", progress=(told,)))
        with recorder.join(*PLACE, "m1") as call:
            call.ok(4, [0, 1])
        with pytest.raises(errors.Conflict), recorder.commit(PLACE, "m1", 3, 1):
            raise errors.Conflict("an old generation")
        recorder.assigned(PLACE, "m1", 5, [2])
        recorder.revoked(PLACE, "m1", 5, [0, 1])
        with recorder.leave(*PLACE, "m1", 5) as call:
            call.ok()
        recorder.sample("lag", 7, 9, topic="t", group="g", stale=True)
    history = load_files(tmp_path)
    assert history.cut == ()
    assert rows(history, "progress", "partition", "committed", "dead", "final", "epoch") == [(2, 3, 1, True, 1)]
    found = history.tables["member"].sorted_by("counter", "event", "partition")
    assert list(zip(*(found.arrays[name].tolist() for name in ("event", "partition", "generation")), strict=True)) == [
        (MemberEvent.JOIN, -1, 4),
        (MemberEvent.ASSIGNED, 0, 4),
        (MemberEvent.ASSIGNED, 1, 4),
        (MemberEvent.COMMIT, 1, 3),
        (MemberEvent.ASSIGNED, 2, 5),
        (MemberEvent.REVOKED, 0, 5),
        (MemberEvent.REVOKED, 1, 5),
        (MemberEvent.LEAVE, -1, 5),
    ]
    assert found.outcome.tolist() == [0, 0, 0, int(CallOutcome.FAIL), 0, 0, 0, 0]
    sample = (SampleKind.LAG, text_id("t"), text_id("g"), 7, 9, True)
    assert rows(history, "sample", "kind", "topic", "group", "told", "truth", "stale") == [sample]


def test_values_are_never_the_same(tmp_path: Path) -> None:
    with HistoryRecorder(tmp_path, "p1") as one, HistoryRecorder(tmp_path, "p2") as two:
        values = [recorder.value(64) for recorder in (one, two) for _ in range(10)]
    assert len(set(values)) == 20 and {len(value) for value in values} == {64}


def test_a_process_id_is_used_once(tmp_path: Path) -> None:
    HistoryRecorder(tmp_path, "p1").close()
    with pytest.raises(FileExistsError):
        HistoryRecorder(tmp_path, "p1")


def test_threads_may_share_a_recorder(tmp_path: Path) -> None:
    with HistoryRecorder(tmp_path, "p1") as recorder:

        def publish() -> None:
            for number in range(50):
                with recorder.publish(*[Attempt(topic="t", value=recorder.value())] * (number % 3 + 1)) as call:
                    call.placed([0] * (number % 3 + 1), range(number % 3 + 1))

        threads = [threading.Thread(target=publish) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    history = load_files(tmp_path)
    assert history.cut == ()
    assert len(history.tables["attempt"]) == 4 * sum(number % 3 + 1 for number in range(50))


def test_what_was_attempted_survives_kill9(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys\nfrom pathlib import Path\n"
        "from prove.history.recorder import Attempt, HistoryRecorder\n"
        "with HistoryRecorder(Path(sys.argv[1]), 'p1').publish(Attempt(topic='t', value=b'v')):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], cwd=ROOT, timeout=60)
    assert done.returncode == -signal.SIGKILL
    history = load_files(tmp_path, crashed=["p1"])
    assert history.cut == ()
    assert rows(history, "attempt", "outcome") == [CallOutcome.INFO]
    assert load_files(tmp_path).cut == ("p1.jsonl: the end line is missing",)
