"""`run.json`: the laboratory's description of its run, and the files that a verdict requires."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import Struct

from lakelog.model.group import Exponential, Fixed, Order, RetryPolicy
from prove.checker.invariant import FaultInterval, GroupRules, RunInfo
from prove.history import truth
from prove.history.tables import text_id

FILE = "run.json"


class _Exponential(Struct, frozen=True, kw_only=True, tag="exponential", forbid_unknown_fields=True):
    max: int
    base_seconds: float
    max_seconds: float
    jitter: float


class _Fixed(Struct, frozen=True, kw_only=True, tag="fixed", forbid_unknown_fields=True):
    max: int
    seconds: float


class _Rules(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    topic: int
    group: int
    retries: _Exponential | _Fixed
    order: Order


class _RunFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    processes: tuple[str, ...]
    crashed: tuple[str, ...]
    truth: dict[str, int]
    names: tuple[str, ...]
    rules: tuple[_Rules, ...]
    faults: tuple[FaultInterval, ...]
    load_ns: tuple[int, int]
    healed_ns: int
    drained_ns: int
    targets: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class RunDescription:
    """A run, with the histories and the rows of truth that must exist."""

    run: RunInfo
    processes: frozenset[str]
    crashed: frozenset[str]
    truth: dict[str, int]


def save_run(folder: Path, run: RunInfo, *, processes: Collection[str]) -> None:
    """Write run.json after all histories and the truth exist. `processes` are all processes that wrote a history."""
    crashed = sorted(name for name in processes if text_id(name) in run.crashed)
    file = _RunFile(
        processes=tuple(sorted(processes)),
        crashed=tuple(crashed),
        truth=truth.counts(folder),
        names=tuple(sorted(set(run.names.values()))),
        rules=tuple(
            _Rules(topic=topic, group=group, retries=_written(rules.retries), order=rules.order)
            for (topic, group), rules in run.rules.items()
        ),
        faults=run.faults,
        load_ns=run.load_ns,
        healed_ns=run.healed_ns,
        drained_ns=run.drained_ns,
        targets=dict(run.targets),
    )
    making = folder / f"{FILE}.new"
    making.write_bytes(msgspec.json.format(msgspec.json.encode(file), indent=1))
    making.rename(folder / FILE)


def load_run(folder: Path) -> RunDescription:
    """Read run.json. Raises OSError or ValueError if it is missing or incomplete."""
    file = msgspec.json.decode((folder / FILE).read_bytes(), type=_RunFile)
    rules = {
        (each.topic, each.group): GroupRules(retries=_meant(each.retries), order=each.order) for each in file.rules
    }
    run = RunInfo(
        names={text_id(name): name for name in (*file.names, *file.processes)},
        rules=rules,
        crashed=frozenset(text_id(name) for name in file.crashed),
        faults=file.faults,
        load_ns=file.load_ns,
        healed_ns=file.healed_ns,
        drained_ns=file.drained_ns,
        targets=file.targets,
    )
    processes, crashed = frozenset(file.processes), frozenset(file.crashed)
    return RunDescription(run=run, processes=processes, crashed=crashed, truth=file.truth)


def _written(policy: RetryPolicy) -> _Exponential | _Fixed:
    base_seconds = policy.base_ms / 1000
    if policy.strategy == "fixed":
        return _Fixed(max=policy.max, seconds=base_seconds)
    return _Exponential(
        max=policy.max, base_seconds=base_seconds, max_seconds=policy.max_ms / 1000, jitter=policy.jitter
    )


def _meant(policy: _Exponential | _Fixed) -> RetryPolicy:
    if isinstance(policy, _Fixed):
        return Fixed(max=policy.max, seconds=policy.seconds)
    return Exponential(
        max=policy.max, base_seconds=policy.base_seconds, max_seconds=policy.max_seconds, jitter=policy.jitter
    )
