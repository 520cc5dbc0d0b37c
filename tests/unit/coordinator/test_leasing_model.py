"""Leases against their reference: random worlds of owners, time, retention and seeks, compared after every step.

A world is made by its seed alone. A failure names it; `LAKELOG_LEASE_SEED=<seed>` runs that world and no other.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path

import pytest

from lakelog.coordinator.leasing import closed_leases
from lakelog.coordinator.leasing.state import MESSAGE_TRANSITIONS, MessageState
from lakelog.coordinator.leasing.step import step
from tests.kit.size import Size
from tests.unit.coordinator.lease_world import World

ALWAYS = (
    "handed out fresh",
    "retried",
    "handed out ready",
    "handed out suspect",
    "suspect with others",
    "busy with a suspect",
    "lease repeated",
    "repeated answer",
    "repeated after the end of the lease",
    "acked",
    "discarded",
    "nacked",
    "released",
    "lease expired",
    "given back behind another",
    "given back below the log start",
    "died of a nack",
    "died of a fatal nack",
    "died of an expiry",
    "extended",
    "marked alone",
    "lapsed waiting",
    "lapsed skipped",
    "expired at first sight",
    "filtered",
    "skipped",
    "look-ahead full",
    "cut",
    "cut by a skip",
    "leased below a skip",
    "sought",
    "fenced",
    "forgot",
    "detail dropped",
    "answered by the one outcome",
    "positioned",
    "drained",
    "refused: lease_lost",
    "refused: outcome_forgotten",
    "refused: not_owner",
    "refused: out_of_order",
    "refused: stale_generation",
    "refused: invalid_request",
    "refused: position_refused",
    "refused: offset_out_of_range",
    *(f"{old} to {new}" for old, those in MESSAGE_TRANSITIONS.items() for new in those),
)
ENOUGH = 100


@pytest.mark.timeout(900)
def test_leases_do_what_their_reference_does(size: Size, monkeypatch: pytest.MonkeyPatch) -> None:
    """S8 to S16, over all orders and policies; and every kind of change happened at least a hundred times."""
    # Else it would take thousands of leases to see one of them forgotten.
    monkeypatch.setattr(closed_leases, "CHECK_AFTER", 4)
    monkeypatch.setattr(closed_leases, "BLOCK", 8)
    monkeypatch.setattr(closed_leases, "_SPARE_BYTES", 0)
    monkeypatch.setattr(sys.modules[step.__module__], "REMEMBER_BYTES", 1500)
    only = os.environ.get("LAKELOG_LEASE_SEED")
    if only is not None:
        World(int(only)).run()
        return
    seen: Counter[str] = Counter()
    seed = 0
    while seen["steps that changed something"] < size.pick(ci=20_000, full=200_000):
        world = World(seed)
        try:
            world.run()
        except Exception as error:
            raise AssertionError(f"World {seed}, step {world.number}: set LAKELOG_LEASE_SEED={seed}.") from error
        seen += world.reference.seen
        seed += 1
    assert {name: seen[name] for name in ALWAYS if seen[name] < ENOUGH} == {}


def test_the_ends_of_a_message_are_those_that_are_counted() -> None:
    ends = {stage.value for stage in MessageState if stage.is_end}
    assert ends == {"acked", "dead", "discarded", "filtered", "expired", "cut"}


def test_the_page_of_state_machines_has_the_transitions_of_the_code() -> None:
    page = Path(__file__).parents[3] / "docs" / "state-machines.md"
    section = page.read_text().split("## A message in a group")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:3]] for line in section.splitlines() if line.startswith("| ")]
    written = [(MessageState(old), MessageState(new)) for old, new in rows[1:]]
    assert len(written) == len(set(written))
    assert set(written) == {(old, new) for old, those in MESSAGE_TRANSITIONS.items() for new in those}
