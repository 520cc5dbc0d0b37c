"""The simulation can fail: it finds bugs in the engine within a few hundred seeds, and nothing without them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count, islice
from typing import NoReturn

import pytest

from lakelog.coordinator.leasing import acquiring, answering
from lakelog.coordinator.leasing.state import DeliveryState, Lease
from lakelog.coordinator.leasing.step import StepInProgress
from lakelog.engine.leasing import cell_health, dispatcher, journals
from lakelog.engine.leasing.dispatcher import Dispatcher
from lakelog.engine.leasing.journal import Journal, PendingCommit, PendingOperation, answer_all
from lakelog.engine.leasing.journal_writer import JournalWriter
from lakelog.engine.leasing.matching import LeaseAttempt
from lakelog.engine.leasing.ready_partitions import ReadyPartitions
from lakelog.errors import LakelogError, LeaseLost
from lakelog.storage.groups import CommitStatus, JournalEntry
from lakelog.storage.memory import groups, partitions
from lakelog.storage.store import PartVerdict
from prove.simulation.command import run_range
from prove.simulation.plan import DAMAGED, LOST_THEN_LATE, SimulationPlan, drawn

MOST = 300


def found(*names: str, first: int = 0, among: Callable[[SimulationPlan], bool] = lambda plan: True) -> str | None:
    """Return the first violation of one of these invariants, in seeds from the first on whose plan matches."""
    for seed in islice((each for each in count(first) if among(drawn(each))), MOST):
        for _, violation in run_range(seed, seed + 1).violations:
            if violation.startswith(tuple(f"{name}:" for name in names)):
                return f"seed {seed}: {violation}"
    return None


def test_without_a_bug_nothing_is_found() -> None:
    share = run_range(5000, 5060)

    assert (share.seeds, list(share.violations)) == (60, [])
    assert share.calls > 2000


def test_nothing_is_cut_while_the_truth_is_told() -> None:
    """A seed in which retention ran between two reads of the final state."""
    assert not run_range(700_089, 700_090).violations


def test_a_repeat_that_comes_before_the_call_itself_may_have_happened() -> None:
    """A seed in which the repeat of a nack arrived first, a seek followed, and the nack was refused."""
    assert not run_range(300_177, 300_178).violations


def test_a_repeated_extend_moves_an_end_that_its_worker_does_not_know() -> None:
    """A seed in which an extend arrived twice; the worker knew only the first end, and acked before the second one."""
    assert not run_range(3_004_645, 3_004_646).violations


@pytest.mark.parametrize("seed", [885_742, 3_040_534])
def test_S9_an_ack_whose_commit_was_lost_is_not_refused_after_the_end_of_its_lease(seed: int) -> None:
    """Seeds in which the lease ended before the server read the journal again."""
    assert not run_range(seed, seed + 1).violations


@pytest.mark.nightly
def test_S8_S12_a_cell_that_falls_silent_breaks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slow responses count as unresponsive here: waiting callers are sent away, and the responses still arrive."""
    monkeypatch.setattr(cell_health, "SLOW_CALL_SECONDS", 0.05)
    monkeypatch.setattr(cell_health, "PROBE_SECONDS", 0.002)
    fell: list[int] = []
    right = journals.Journals._cell_unresponsive

    def counted(self: journals.Journals, cell: int) -> None:
        fell.append(cell)
        right(self, cell)

    monkeypatch.setattr(journals.Journals, "_cell_unresponsive", counted)

    assert not run_range(600_000, 600_200).violations
    assert len(fell) > 20


def test_S9_an_ack_that_ignores_its_token_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = answering._lease_of

    def wrong(decision: StepInProgress, owner: str, token: int | None, ranges: answering.Ranges) -> object:
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


@pytest.mark.nightly
def test_S16_the_highest_ack_instead_of_the_contiguous_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DeliveryState, "committed", property(lambda state: state.frontier))

    assert found("S16")


def test_S8_an_expiry_by_the_servers_clock_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The decision is written whatever the database clock says."""
    right = groups.MemoryGroups._commit

    def wrong(self: groups.MemoryGroups, entry: JournalEntry, now: int) -> CommitStatus:
        return right(self, replace(entry, not_before_ms=0, not_after_ms=1 << 62), now)

    monkeypatch.setattr(groups.MemoryGroups, "_commit", wrong)

    assert found("S8", "S9", "S13")


def test_S12_deliveries_that_are_not_counted_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = acquiring._granted

    def wrong(decision: StepInProgress, lease: Lease) -> object:
        granted = right(decision, lease)
        once: Mapping[int, int] = dict.fromkeys(granted.deliveries, 1)
        return replace(granted, deliveries=once)

    monkeypatch.setattr(acquiring, "_granted", wrong)

    assert found("S12", "S8")


@pytest.mark.nightly
def test_S1_an_append_that_is_lost_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The repeat is not looked up: the commit of unknown outcome is written twice."""

    def wrong(*_: object) -> Iterator[PartVerdict]:
        return iter(())

    monkeypatch.setattr(partitions, "judge_sequenced", wrong)

    assert found("S4", "S5")


@pytest.mark.nightly
def test_S10_a_journal_without_a_version_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two servers decide at once, and the second decision overwrites the first."""
    right = groups.MemoryGroups._commit

    def wrong(self: groups.MemoryGroups, entry: JournalEntry, now: int) -> CommitStatus:
        journal = self._journals.get((entry.group_id, entry.pid))
        if journal is not None and entry.version == journal.last:
            journal.rows.pop()
        return right(self, entry, now)

    monkeypatch.setattr(groups.MemoryGroups, "_commit", wrong)

    assert found("S8", "S9", "S10", "S11", "S12", "unexpected", "the run failed")


def test_S11_a_commit_of_unknown_outcome_that_is_taken_for_done_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(self: JournalWriter, turn: PendingCommit, error: Exception) -> None:
        answer_all(turn)

    monkeypatch.setattr(JournalWriter, "_again", wrong)

    assert found("S8", "S9", "S10", "S11", "S12", "S16", "unexpected", "the run failed")


@pytest.mark.nightly
def test_L8_a_repeated_consume_that_does_not_look_for_its_lease_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Dispatcher, "_search", lambda self, ask: None)

    assert found("L8", among=lambda plan: plan.forgets > 0)


@pytest.mark.nightly
def test_S9_an_ack_that_is_forgotten_too_soon_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its repeat is refused, as if another owner held the message."""

    monkeypatch.setattr(answering, "OutcomeForgotten", LeaseLost)

    assert "accepted before" in str(found("S9", first=1470, among=lambda plan: plan.repeats_late))


def test_S9_a_refusal_after_a_lost_commit_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ack was written, and its response lost until the lease had ended: the second decision refuses it."""

    def refuse(self: PendingOperation, error: LakelogError) -> None:
        if not self.done.done():
            self.done.set_exception(error)

    def ended(lease: Lease) -> NoReturn:
        raise LeaseLost()

    monkeypatch.setattr(PendingOperation, "refuse", refuse)
    monkeypatch.setattr(answering, "_as_closed", ended)

    loses = lambda plan: any(fault.kind == LOST_THEN_LATE for fault in plan.faults)  # noqa: E731
    assert found("S9", "S11", first=1070, among=loses)


@pytest.mark.nightly
def test_L9_a_damaged_partition_that_holds_up_the_others_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that asks for messages of all partitions is refused because of one of them."""

    def wrong(tries: Sequence[LeaseAttempt], refusal: BaseException | None) -> BaseException | None:
        return next((failed for each in tries if (failed := each.reply.exception())), refusal)

    monkeypatch.setattr(dispatcher, "error_of", wrong)
    monkeypatch.setattr(Journal, "is_stopped", property(lambda journal: False))

    assert found("L9", first=7640, among=lambda plan: any(fault.kind == DAMAGED for fault in plan.faults))


@pytest.mark.nightly
def test_L1_messages_of_a_shard_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers that deliver their own shards only."""
    monkeypatch.setattr(ReadyPartitions, "_left_over", lambda self, consumer: iter(()))
    assert found("L1", among=lambda plan: plan.shard_seconds > 0)
