"""The fault scenarios' way to a verdict: what went wrong in a history fails the scenario, what went right does not."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from prove.checker.invariant import GroupRules
from prove.history.lease_lines import OwnerAnswer
from prove.history.loading import History, load_files
from prove.history.recorder import Attempt, HistoryRecorder, PublishedAt
from prove.history.tables import CallOutcome
from tests.faults.crews import (
    assert_leases_valid,
    assert_log_valid,
    in_hand,
    lease_history,
    told,
    truth_of,
    with_truth,
)
from tests.kit.fleet import Fleet
from tests.kit.lease_owner import HttpOwner

TOPIC, GROUP = "orders", "billing"
ACK = OwnerAnswer(verb="ack", partition=0, token=2, offsets=(0,))


class Server(Fleet):
    """A log of one message, of which all is acked; each owner gets it by the next token, whoever has it."""

    def __init__(self) -> None:
        self.ports = [1]
        self.token = None
        self.tokens = 0
        self.expires = datetime.now(UTC) + timedelta(seconds=60)
        self.messages = [{"offset": 0, "key": "k", "value": "w0-v0", "idempotency_key": "i"}]

    def request(self, method: str, path: str, body: Any = None, *, server: int = 0) -> Any:
        if path.endswith("/messages?offset=0&limit=5000"):
            return {"messages": self.messages, "next_offset": len(self.messages)}
        return {"partition_list": [{"partition": 0, "log_start": 0, "high_watermark": len(self.messages)}]}

    def call(self, method: str, path: str, body: Any = None) -> tuple[str, Any, str]:
        """The part that owners need."""
        if path == "/v1/consume":
            self.tokens += 1
            message = {**self.messages[0], "delivery": self.tokens, "failures": 0}
            lease = {"partition": 0, "token": self.tokens, "suspect": False, "messages": [message]}
            return "ok", {"leases": [{**lease, "expires_at": self.expires.isoformat()}]}, ""
        if path.endswith("/lag"):
            ends = {"committed": 1, "frontier": 1, "high_watermark": 1, "acked": 1}
            return "ok", {"partitions": [{"topic": TOPIC, "partition": 0, "epoch": 0, "status": "working", **ends}]}, ""
        return "ok", {"results": [{"ok": True}], "dead_letters": []}, ""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    made = Server()
    monkeypatch.setattr(HttpOwner, "call", lambda owner, *told: made.call(*told))
    return made


def leased(server: Server, folder: Path, first_ends: timedelta, *, killed: bool) -> History:
    """Two owners after one another, of which the second acks; the first holds its lease until then."""
    now = datetime.now(UTC)
    server.expires = now + first_ends
    first, second = (HttpOwner(HistoryRecorder(folder, name), [1], TOPIC, GROUP) for name in ("w1", "w2"))
    first.consume(1, 1000)
    server.expires = now + timedelta(seconds=60)
    second.consume(1, 60_000)
    assert second.say(ACK) == ["ok"]
    first.close()
    second.close()
    if killed:
        path = folder / "w1.jsonl"
        path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    truth = truth_of(server, folder, TOPIC, GROUP, {(0, 0): ("k", "w0-v0")}, GroupRules())
    return lease_history(folder, truth, killed=["w1"] if killed else [])


def test_an_expired_lease_goes_to_another_owner(server: Server, tmp_path: Path) -> None:
    history = leased(server, tmp_path, timedelta(milliseconds=-10), killed=True)
    assert_leases_valid(history)
    assert (in_hand(history), told(history, CallOutcome.OK), told(history, CallOutcome.INFO)) == (1, 3, 0)


@pytest.mark.parametrize(
    ("ends", "killed", "wrong"),
    [
        (timedelta(seconds=30), False, r"S8 invalid \(1\).*w1"),
        (timedelta(seconds=-90), True, r"L5 invalid \(1\).*the dead owner w1"),
    ],
)
def test_a_seeded_break_of_leases_fails(
    server: Server, tmp_path: Path, ends: timedelta, killed: bool, wrong: str
) -> None:
    """S8: two owners at once; L5: a dead owner's message comes back much too late."""
    with pytest.raises(AssertionError, match=wrong):
        assert_leases_valid(leased(server, tmp_path, ends, killed=killed))


def test_a_history_without_its_end_fails_unless_its_owner_was_killed(server: Server, tmp_path: Path) -> None:
    history = leased(server, tmp_path, timedelta(milliseconds=-10), killed=True)
    assert history.cut == ()
    with pytest.raises(AssertionError, match=r"S8 unknown.*w1.jsonl: the end line is missing"):
        assert_leases_valid(with_truth(load_files(tmp_path), history.tables))


def test_a_message_that_was_never_published_fails_the_truth(server: Server, tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        truth_of(server, tmp_path, TOPIC, GROUP, {}, GroupRules())


LOSSES: dict[str, tuple[Callable[[Server], object], str | None]] = {
    "nothing": (lambda server: None, None),
    "S1 the acked message is gone": (lambda server: server.messages.clear(), "S1 invalid"),
    "S2 another value": (lambda server: server.messages[0].update(value="ghost"), "S2 invalid"),
    "S2 another key": (lambda server: server.messages[0].update(key="l"), "S2 invalid"),
    "S4 it is there twice": (
        lambda server: server.messages.append({**server.messages[0], "offset": 1}),
        "S4 invalid",
    ),
}


@pytest.mark.parametrize("what", LOSSES)
def test_a_seeded_break_of_the_log_fails(server: Server, tmp_path: Path, what: str) -> None:
    lose, wrong = LOSSES[what]
    with HistoryRecorder(tmp_path, "w0") as recorder:
        attempt = Attempt(topic=TOPIC, value=recorder.value(), key="k", idempotency_key="i")
        with recorder.publish(attempt) as call:
            call.ok(PublishedAt(partition=0, offset=0))
    lose(server)
    history = with_truth(load_files(tmp_path), server.read_all(TOPIC))
    if wrong is None:
        assert_log_valid(history)
    else:
        with pytest.raises(AssertionError, match=wrong):
            assert_log_valid(history)
