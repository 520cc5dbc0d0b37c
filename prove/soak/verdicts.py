"""The requirements of a soak, judged from its figures. Shorter runs are judged by the same shares of their duration."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from prove.soak.gauges import MAX_WAL, GaugeReading
from prove.soak.latency import Latency, Waits

HOUR = 3600.0
GROWTH = 0.10
FACTOR = 1.5
FEW_DEAD = 120_000
"""The number of dead tuples that do not trigger a vacuum yet: 50,000 in the journal of each cell, and those added
before it runs.
"""
FEW_MIB = 100.0
"""Sizes below this always pass: empty databases have about 20 MiB, and a vacuumed table keeps its size."""
LAG_SECONDS = 5.0
"""A group with less lag than this is at the end of the log, because leases and commits work in batches."""
LEAST_MS = 5.0
"""Waits that are shorter than this are noise of the machine."""


class SoakVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on one requirement."""

    name: str
    asked: str
    measured: str
    holds: bool


def verdicts(taken: Sequence[GaugeReading], latency: Latency, rate: float) -> list[SoakVerdict]:
    seconds = taken[-1].at
    groups = sorted({group for each in taken for group in each.lag})
    return [
        memory(taken),
        bounded("dead tuples", taken, lambda each: each.dead, least=FEW_DEAD),
        bounded("databases, MiB", taken, lambda each: each.database / 2**20, least=FEW_MIB),
        bounded("write-ahead logs, MiB", taken, lambda each: each.wal / 2**20, least=2 * MAX_WAL / 2**20),
        tiered(taken),
        steady("publish p99, ms", latency.publish, seconds),
        steady("publish to delivery p99, ms", latency.delivery, seconds),
        *(bounded(f"lag of {group}", taken, _lag(group), least=LAG_SECONDS * rate) for group in groups),
    ]


def undisturbed(seconds: float, asked: float) -> SoakVerdict:
    """Require the requested duration without stalls."""
    return SoakVerdict(
        name="minutes in which the machine did not stall",
        asked=f"{asked / 60:g}",
        measured=f"{seconds / 60:.1f}",
        holds=seconds >= asked - 1,
    )


def _lag(group: str) -> Callable[[GaugeReading], float]:
    return lambda each: each.lag.get(group, 0)


def memory(taken: Sequence[GaugeReading]) -> SoakVerdict:
    """Require bounded memory of all servers: the last two minutes against the minutes 10 to 12."""
    seconds = taken[-1].at
    share = min(1.0, seconds / HOUR)
    first = _mean(taken, 600 * share, 720 * share)
    last = _mean(taken, seconds - 120 * share, seconds)
    grown = last / first - 1
    return SoakVerdict(
        name="resident memory of servers",
        asked=f"grows by less than {GROWTH:.0%}",
        measured=f"{first / 2**20:,.0f} MiB, at the end {last / 2**20:,.0f} MiB: {grown:+.1%}",
        holds=grown < GROWTH,
    )


def bounded(
    name: str, taken: Sequence[GaugeReading], of: Callable[[GaugeReading], float], *, least: float = 0.0
) -> SoakVerdict:
    """Require a maximum in the second half not above that of the second quarter. Values below `least` pass."""
    seconds = taken[-1].at
    early = max((of(each) for each in taken if seconds / 4 <= each.at < seconds / 2), default=0.0)
    late = max(of(each) for each in taken if each.at >= seconds / 2)
    limit = max(FACTOR * early, least)
    return SoakVerdict(
        name=name,
        asked=f"second half <= {FACTOR:g} x second quarter" + (f", or <= {least:,.0f}" if least else ""),
        measured=f"{early:,.0f}, then {late:,.0f}",
        holds=late <= limit,
    )


def tiered(taken: Sequence[GaugeReading]) -> SoakVerdict:
    """Require that tiering happened. Files below the retention limit are deleted a day later."""
    half = next(each.store for each in taken if each.at >= taken[-1].at / 2)
    last = taken[-1].store
    return SoakVerdict(
        name="object store, MiB",
        asked="grows in the second half",
        measured=f"{half / 2**20:,.1f}, then {last / 2**20:,.1f}",
        holds=last > half,
    )


def steady(name: str, waits: Waits, seconds: float) -> SoakVerdict:
    """Require that the last sixth is not slower than the first sixth after a twelfth of warm-up."""
    early = waits.quantile(0.99, seconds / 12, seconds / 4)
    late = waits.quantile(0.99, 5 * seconds / 6, seconds)
    # No call in the last sixth means that the system stalled, which is not steady.
    return SoakVerdict(
        name=name,
        asked=f"last sixth <= {FACTOR:g} x first sixth after warm-up",
        measured=f"{early:,.1f}, then {late:,.1f}",
        holds=0 <= late <= max(FACTOR * early, LEAST_MS),
    )


def _mean(taken: Sequence[GaugeReading], begin: float, end: float) -> float:
    """Return the mean of the readings in that time, or the nearest reading."""
    chosen = [each for each in taken if begin <= each.at <= end]
    chosen = chosen or [min(taken, key=lambda each: abs(each.at - (begin + end) / 2))]
    return sum(sum(each.memory.values()) for each in chosen) / len(chosen)
