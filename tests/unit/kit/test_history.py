"""Histories: what is written before and after a call, and that damage is never passed over."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lakelog import errors
from tests.kit.history import History, Seen, load, value_hash
from tests.kit.recorder import Attempt, Placed, Recorder

ROOT = Path(__file__).parents[3]


def _write(folder: Path, process: str = "p1") -> None:
    with Recorder(folder, process) as recorder:
        for number in range(2):
            with recorder.publish(Attempt(topic="t", value=recorder.value(), key="k")) as call:
                call.ok(Placed(partition=0, offset=number))


def test_an_attempt_is_on_disk_before_the_call_is_made(tmp_path: Path) -> None:
    with Recorder(tmp_path, "p1") as recorder:
        attempt = Attempt(topic="t", value=b"v", key="k", idempotency_key="i", producer="x", sequence=4)
        with recorder.publish(attempt) as call:
            (before,) = load(tmp_path, crashed=["p1"]).operations
            call.ok(Placed(partition=3, offset=812))
    (after,) = load(tmp_path).operations
    assert (before.outcome, before.hash, before.offset) == ("info", value_hash(b"v"), None)
    assert (after.outcome, after.partition, after.offset, after.id) == ("ok", 3, 812, "p1-0")
    assert (after.key, after.idempotency_key, after.producer, after.sequence) == ("k", "i", "x", 4)
    assert after.completed_ns is not None and after.completed_ns >= after.invoked_ns


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (errors.TooLarge("too large"), "fail"),
        (errors.IdempotencyConflict("other bytes"), "fail"),
        (errors.TopicNotFound("no topic"), "fail"),
        (errors.OutcomeUnknown("who knows"), "info"),
        (errors.Unavailable("later"), "info"),
        (errors.Overloaded("later"), "info"),
        (ConnectionResetError(), "info"),
        (KeyboardInterrupt(), "info"),
    ],
)
def test_only_a_definite_refusal_is_fail(tmp_path: Path, error: BaseException, outcome: str) -> None:
    attempt = Attempt(topic="t", value=b"v")
    with Recorder(tmp_path, "p1") as recorder, pytest.raises(type(error)), recorder.publish(attempt):
        raise error
    assert [operation.outcome for operation in load(tmp_path).operations] == [outcome]


def test_a_call_whose_outcome_was_not_told_is_info(tmp_path: Path) -> None:
    with Recorder(tmp_path, "p1") as recorder, recorder.publish(Attempt(topic="t", value=b"v")):
        pass
    assert [operation.outcome for operation in load(tmp_path).operations] == ["info"]


def test_a_batch_has_an_outcome_per_message(tmp_path: Path) -> None:
    with Recorder(tmp_path, "p1") as recorder:
        with recorder.publish(*(Attempt(topic="t", value=bytes([n])) for n in range(3))) as call:
            call.each([Placed(partition=0, offset=5), errors.TooLarge("x"), errors.Unavailable("y")])
        with (
            recorder.publish(Attempt(topic="t", value=b"v")) as call,
            pytest.raises(ValueError, match="2 results for 1"),
        ):
            call.ok(Placed(partition=0, offset=1), Placed(partition=0, offset=2))
    operations = load(tmp_path).operations
    assert [operation.outcome for operation in operations] == ["ok", "fail", "info", "info"]
    assert [operation.batch for operation in operations] == [0, 0, 0, 3]


def test_a_fetch_keeps_what_it_saw(tmp_path: Path) -> None:
    with Recorder(tmp_path, "p1") as recorder, recorder.fetch("t", 2, 10) as call:
        call.ok([Seen(10, "aa", "k"), Seen(11, "bb")], log_start=3, high_watermark=12)
    (fetch,) = load(tmp_path).operations
    assert (fetch.asked_partition, fetch.asked_offset, fetch.log_start, fetch.high_watermark) == (2, 10, 3, 12)
    assert fetch.messages == (Seen(10, "aa", "k"), Seen(11, "bb", None))


def test_values_are_never_the_same(tmp_path: Path) -> None:
    with Recorder(tmp_path, "p1") as one, Recorder(tmp_path, "p2") as two:
        values = [recorder.value(64) for recorder in (one, two) for _ in range(10)]
    assert len(set(values)) == 20 and {len(value) for value in values} == {64}


def test_a_process_id_is_used_once(tmp_path: Path) -> None:
    _write(tmp_path)
    with pytest.raises(FileExistsError):
        Recorder(tmp_path, "p1")


def test_what_was_attempted_survives_kill9(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom tests.kit.recorder import Attempt, Recorder\n"
        "with Recorder(Path(sys.argv[1]), 'p1').publish(Attempt(topic='t', value=b'v')):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], cwd=ROOT, timeout=60)
    assert done.returncode == -signal.SIGKILL
    history = load(tmp_path, crashed=["p1"])
    assert history.cut == ()
    assert [operation.outcome for operation in history.operations] == ["info"]
    assert load(tmp_path).cut == ("p1.jsonl: it ends before its end line",)


def _lines(path: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))


DAMAGES: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "torn last line": lambda lines: [*lines[:-1], lines[-1][:-5]],
    "last newline gone": lambda lines: [*lines[:-1], lines[-1][:-1]],
    "end gone": lambda lines: lines[:-1],
    "outcome and end gone": lambda lines: lines[:-2],
    "line in the middle gone": lambda lines: lines[:1] + lines[2:],
    "first line gone": lambda lines: lines[1:],
    "line twice": lambda lines: [lines[0], *lines],
    "lines swapped": lambda lines: [lines[1], lines[0], *lines[2:]],
    "not JSON": lambda lines: [lines[0], b"\x00\x00\n", *lines[2:]],
    "unknown field": lambda lines: [lines[0].replace(b'"topic"', b'"tropic"'), *lines[1:]],
    "another's line": lambda lines: [lines[0].replace(b'"p1"', b'"p2"'), *lines[1:]],
    "more after the end": lambda lines: [*lines, lines[-1].replace(b'"line":4', b'"line":5')],
    "empty": lambda lines: [],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_marks_the_history_as_cut(tmp_path: Path, damage: str) -> None:
    _write(tmp_path, "p0")
    _write(tmp_path)
    assert load(tmp_path).cut == ()
    _lines(tmp_path / "p1.jsonl", DAMAGES[damage])
    history = load(tmp_path)
    assert len(history.cut) == 1 and "p1" in history.cut[0]
    # What can be read is kept, as a hint.
    assert len(history.operations) >= 2


def test_a_torn_line_is_a_cut_even_of_a_crashed_process(tmp_path: Path) -> None:
    _write(tmp_path)
    _lines(tmp_path / "p1.jsonl", DAMAGES["torn last line"])
    assert load(tmp_path, crashed=["p1"]).cut


def test_missing_histories_are_a_cut(tmp_path: Path) -> None:
    assert load(tmp_path) == History(operations=(), cut=(f"no history in {tmp_path}",))
    _write(tmp_path)
    assert load(tmp_path, crashed=["p9"]).cut == ("p9: its history is missing",)
