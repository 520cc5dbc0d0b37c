"""The promotion of a standby: what is done to the old primary, and what is undone if the fault cannot be made."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from prove.lab.claims import Claims
from prove.lab.faults.failover import Promotion


class OldPrimary:
    def __init__(self) -> None:
        self.calls: list[str] = []

    def execute(self, statement: str) -> list[tuple[bool]]:
        self.calls.append(statement)
        return [(True,)]

    def __getattr__(self, name: str) -> Any:
        return lambda: self.calls.append(name)


def make_topology(old: OldPrimary, standby: Any) -> Any:
    def add_standby(number: int) -> Any:
        if standby is None:
            raise RuntimeError("no room for a standby")
        return standby

    promoted: list[int] = []
    return SimpleNamespace(
        claims=Claims(),
        cells=["cell0"],
        clusters=[old],
        add_standby=add_standby,
        promote=lambda number, _: promoted.append(number),
        promoted=promoted,
    )


@pytest.mark.parametrize(("seed", "done"), [(1, ["pause", "resume", "close"]), (4, ["kill9", "close"])])
def test_the_old_primary_is_gone_afterwards(seed: int, done: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prove.lab.faults.failover._SETTLED_SECONDS", 0.0)
    old = OldPrimary()
    topology = make_topology(old, SimpleNamespace(caught_up_with=lambda _: True))
    fault = Promotion()
    fault.begin(topology, random.Random(seed))
    assert topology.promoted == [0] and fault.has_disturbed
    fault.end(topology)
    assert [call for call in old.calls if " " not in call] == done
    topology.claims.take({"cell0"}, within=0)


def test_a_promotion_that_cannot_be_made_leaves_the_primary_as_it_was() -> None:
    old = OldPrimary()
    topology = make_topology(old, None)
    fault = Promotion()
    with pytest.raises(RuntimeError):
        fault.begin(topology, random.Random(1))
    fault.end(topology)
    assert old.calls == ["ensure_running", "alter system reset synchronous_standby_names", "select pg_reload_conf()"]
    assert not fault.has_disturbed
    topology.claims.take({"cell0"}, within=0)
