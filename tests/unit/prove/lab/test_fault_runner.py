"""Faults of a schedule are begun, ended and recorded; a fault that cannot be injected releases its claims."""

from __future__ import annotations

import random
import threading
import time
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from prove.lab import fault_runner
from prove.lab.claims import Busy, Claims
from prove.lab.fault_runner import FaultRunner
from prove.lab.faults import KINDS, BaseFault
from prove.lab.faults.fault import ALL, TIERING, Symptom
from prove.lab.schedule import ScheduledFault


class Harmless(BaseFault):
    kind: ClassVar[str] = "harmless"
    ended: ClassVar[list[str]] = []

    def begin(self, topology: Any, chance: random.Random) -> None:
        self.seconds = 0.0
        self.claim_one(topology, ["server0"], chance)

    def end(self, topology: Any) -> None:
        self.ended.append(self.about)
        self.release(topology)


class Impossible(BaseFault):
    kind: ClassVar[str] = "impossible"

    def begin(self, topology: Any, chance: random.Random) -> None:
        self.claim(topology, ["server0"])
        raise Busy("no client has work to do")


class TooLate(BaseFault):
    kind: ClassVar[str] = "too late"

    def begin(self, topology: Any, chance: random.Random) -> None:
        self.claim(topology, ["server0"])
        self.has_disturbed = True
        raise Busy("it was not reached")


class Broken(BaseFault):
    kind: ClassVar[str] = "broken"

    def begin(self, topology: Any, chance: random.Random) -> None:
        self.claim(topology, ["server0"])
        raise OSError("it is not there")


@pytest.fixture
def topology(monkeypatch: pytest.MonkeyPatch) -> Any:
    kinds = {each.kind: each for each in (Harmless, Impossible, TooLate, Broken)}
    monkeypatch.setattr(fault_runner, "KINDS", kinds)
    Harmless.ended.clear()
    return SimpleNamespace(claims=Claims())


def play(topology: Any, *kinds: str) -> FaultRunner:
    found = FaultRunner(topology, [ScheduledFault(at=0.0, kind=kind, seed=number) for number, kind in enumerate(kinds)])
    found.run()
    return found


def test_a_fault_is_begun_ended_and_written_down(topology: Any) -> None:
    found = play(topology, "harmless", "harmless")
    assert [(each.kind, each.about) for each in found.happened] == [("harmless", "server0")] * 2
    assert all(each.began_ns <= each.ended_ns for each in found.happened) and not found.active
    assert Harmless.ended == ["server0", "server0"] and not found.failed


def test_a_fault_hits_the_target_that_it_is_given(topology: Any) -> None:
    found = FaultRunner(topology, [ScheduledFault(at=0.0, kind="harmless", seed=0, target="server7")])
    found.run()
    assert [each.about for each in found.happened] == ["server7"]


@pytest.mark.parametrize("kind", ["impossible", "broken"])
def test_one_that_cannot_be_made_is_told_and_leaves_nothing_claimed(topology: Any, kind: str) -> None:
    found = play(topology, kind)
    assert not found.happened and found.failed[0].startswith(f"{kind}: ")
    topology.claims.take(["server0"], within=0)


def test_what_one_that_was_not_made_disturbed_is_written_down(topology: Any) -> None:
    """A server that was restarted for a failed fault is down all the same, so the clocks of L1, L2, L4 and L5 stop."""
    (found,) = play(topology, "too late").unmade
    assert found.kind == "too late" and 0 < found.began_ns <= found.ended_ns


def test_one_that_disturbed_nobody_is_not_written_down(topology: Any) -> None:
    """A record would excuse the time for which the fault waited."""
    found = play(topology, "impossible")
    assert not found.unmade and len(found.failed) == 1


def test_a_fault_begins_when_it_has_what_it_claims(topology: Any) -> None:
    """Until then the fault waits for others, which excuses nothing."""
    topology.claims.take(["server0"])
    freed: list[int] = []

    def free() -> None:
        freed.append(time.monotonic_ns())
        topology.claims.free(["server0"])

    threading.Timer(0.2, free).start()
    (found,) = play(topology, "harmless").happened
    assert found.began_ns >= freed[0]


def test_what_is_cut_begins_nothing_more(topology: Any) -> None:
    found = FaultRunner(topology, [ScheduledFault(at=3600.0, kind="harmless", seed=0)])
    found.cut()
    found.run()
    assert not found.happened


def test_every_kind_has_a_name_and_says_how_it_shows() -> None:
    assert len(KINDS) >= 20
    for name, kind in KINDS.items():
        fault = kind()
        assert fault.kind == name and fault.seconds > 0
        assert fault.counts_by.signs <= set(Symptom)
        assert fault.counts_by.roles <= ALL | TIERING | {"late"}
    assert sum(bool(kind.counts_by.signs) for kind in KINDS.values()) >= 14
