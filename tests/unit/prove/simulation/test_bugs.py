"""The simulation can fail: bugs put into the engine are found within a few hundred seeds, and nothing without them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from lakelog.coordinator.leasing import answering, taking
from lakelog.coordinator.leasing.state import Lease, State
from lakelog.coordinator.leasing.step import Decision
from lakelog.engine import ledgers, silence
from lakelog.engine.ledger import Turn, reply_to
from lakelog.storage.groups import CommitStatus, JournalEntry
from lakelog.storage.memory import groups, partitions
from lakelog.storage.store import PartVerdict
from prove.simulation.command import run_range

MOST = 300


def found(*names: str) -> str | None:
    """The first violation of one of these invariants."""
    for seed in range(MOST):
        for _, violation in run_range(seed, seed + 1).violations:
            if violation.startswith(tuple(f"{name}:" for name in names)):
                return f"seed {seed}: {violation}"
    return None


def test_without_a_bug_nothing_is_found() -> None:
    share = run_range(5000, 5060)

    assert (share.seeds, list(share.violations)) == (60, [])
    assert share.calls > 2000


def test_nothing_is_cut_while_the_truth_is_told() -> None:
    """A seed in which retention came between two reads of it."""
    assert not run_range(700_089, 700_090).violations


def test_a_repeat_that_comes_before_the_call_itself_may_have_happened() -> None:
    """A seed in which the repeat of a nack was first, a seek came next, and the nack was refused then."""
    assert not run_range(300_177, 300_178).violations


def test_S8_S12_a_cell_that_falls_silent_breaks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slow answers are taken for silence here: who waits for them is sent away, and they come all the same."""
    monkeypatch.setattr(silence, "PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr(silence, "QUESTION_SECONDS", 0.002)
    fell: list[int] = []
    right = ledgers.Ledgers._fell_silent

    def counted(self: ledgers.Ledgers, cell: int) -> None:
        fell.append(cell)
        right(self, cell)

    monkeypatch.setattr(ledgers.Ledgers, "_fell_silent", counted)

    assert not run_range(600_000, 600_200).violations
    assert len(fell) > 20


def test_S9_an_ack_that_ignores_its_token_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = answering._lease_of

    def wrong(decision: Decision, owner: str, token: int | None, ranges: answering.Ranges) -> object:
        for lease in decision.state.leases.values():
            if ranges and ranges[0][0] in lease.open:
                return lease
        return right(decision, owner, token, ranges)

    monkeypatch.setattr(answering, "_lease_of", wrong)

    assert found("S9")


def test_S4_an_idempotency_key_that_is_forgotten_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*_: object) -> Iterator[PartVerdict]:
        return iter(())

    monkeypatch.setattr(partitions, "judge_keyed", wrong)

    assert found("S4")


def test_S16_the_highest_ack_instead_of_the_contiguous_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(State, "committed", property(lambda state: state.frontier))

    assert found("S16")


def test_S8_an_expiry_by_the_servers_clock_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The decision is written whatever the database's clock says."""
    right = groups.MemoryGroups._commit

    def wrong(self: groups.MemoryGroups, entry: JournalEntry, now: int) -> CommitStatus:
        return right(self, replace(entry, not_before_ms=0, not_after_ms=1 << 62), now)

    monkeypatch.setattr(groups.MemoryGroups, "_commit", wrong)

    assert found("S8", "S9", "S13")


def test_S12_deliveries_that_are_not_counted_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = taking._granted

    def wrong(decision: Decision, lease: Lease, offsets: object) -> object:
        granted = right(decision, lease, offsets)  # type: ignore[arg-type]
        once: Mapping[int, int] = dict.fromkeys(granted.deliveries, 1)
        return replace(granted, deliveries=once)

    monkeypatch.setattr(taking, "_granted", wrong)

    assert found("S12", "S8")


def test_S1_an_append_that_is_lost_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A repeat that is not looked for: the commit of unknown outcome is written twice."""

    def wrong(*_: object) -> Iterator[PartVerdict]:
        return iter(())

    monkeypatch.setattr(partitions, "judge_sequenced", wrong)

    assert found("S4", "S5")


def test_S10_a_journal_without_a_version_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two servers decide at once, and the second one's decision is written over the first one's."""
    right = groups.MemoryGroups._commit

    def wrong(self: groups.MemoryGroups, entry: JournalEntry, now: int) -> CommitStatus:
        journal = self._journals.get((entry.group_id, entry.pid))
        if journal is not None and entry.version == journal.last:
            journal.rows.pop()
        return right(self, entry, now)

    monkeypatch.setattr(groups.MemoryGroups, "_commit", wrong)

    assert found("S8", "S9", "S10", "S11", "S12", "unexpected", "the run failed")


def test_S11_a_commit_of_unknown_outcome_that_is_taken_for_done_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(self: ledgers.Ledgers, turn: Turn, error: Exception) -> None:
        reply_to(turn)

    monkeypatch.setattr(ledgers.Ledgers, "_again", wrong)

    assert found("S8", "S9", "S10", "S11", "S12", "S16", "unexpected", "the run failed")
