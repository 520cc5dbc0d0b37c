"""Incidents above the limit are counted, deaths are always stored, and each has a fingerprint."""

from __future__ import annotations

from lakelog.coordinator.leasing.incidents import LOST
from lakelog.engine.leasing.incident_sampler import TIMED_OUT, IncidentSampler
from lakelog.model.fingerprint import fingerprint_of
from lakelog.model.group import MAX_REASON_BYTES
from lakelog.model.incident import MAX_INCIDENT_TRACEBACK, Incident, IncidentKind


def incident(kind: IncidentKind = IncidentKind.FAILED, reason: str = "ValueError: 1", **given: object) -> Incident:
    return Incident(
        kind=kind,
        offset=1,
        epoch=0,
        deliveries=1,
        failures=1,
        owner="w",
        leased_ms=0,
        reason=reason,
        **given,  # type: ignore[arg-type]
    )


def test_above_the_limit_incidents_are_counted_and_the_count_is_stored_with_the_next() -> None:
    sampler = IncidentSampler(limit=3)
    stored = sampler.prepare(1, [incident()] * 10, 5000)
    assert [each.left_out for each in stored] == [0, 0, 0]
    assert sampler.prepare(1, [incident()], 5999) == []
    assert len(sampler.prepare(2, [incident()], 5999)) == 1, "each group has its own limit"
    assert [each.left_out for each in sampler.prepare(1, [incident()] * 2, 6000)] == [8, 0]


def test_deaths_are_always_stored() -> None:
    sampler = IncidentSampler(limit=1)
    sampler.prepare(1, [incident()] * 4, 5000)
    (dead,) = sampler.prepare(1, [incident(IncidentKind.DEAD)], 5000)
    assert (dead.kind, dead.left_out) == (IncidentKind.DEAD, 3)


def test_a_handler_that_exceeded_its_time_timed_out() -> None:
    (found,) = IncidentSampler().prepare(1, [incident(reason=f"{TIMED_OUT}5 s")], 0)
    assert found.kind is IncidentKind.TIMED_OUT
    (dead,) = IncidentSampler().prepare(1, [incident(IncidentKind.DEAD, f"{TIMED_OUT}5 s")], 0)
    assert dead.kind is IncidentKind.DEAD


def test_the_fingerprint_is_that_of_the_reason_and_the_traceback() -> None:
    traceback = '  File "/app/shop/pay.py", line 4, in charge\n' + "x" * 9000
    first, lost, acked = IncidentSampler().prepare(
        1, [incident(traceback=traceback), incident(reason=LOST), incident(IncidentKind.ACKED, "")], 0
    )
    assert first.fingerprint == fingerprint_of("ValueError: 2", traceback).number
    assert first.traceback is not None and len(first.traceback.encode()) <= MAX_INCIDENT_TRACEBACK
    assert lost.fingerprint == fingerprint_of(LOST).number
    assert acked.fingerprint == 0


def test_a_long_reason_is_cut() -> None:
    (found,) = IncidentSampler().prepare(1, [incident(reason="ä" * MAX_REASON_BYTES)], 0)
    assert len(found.reason.encode()) <= MAX_REASON_BYTES


def test_many_groups_are_forgotten_except_those_with_a_count() -> None:
    sampler = IncidentSampler(limit=1)
    sampler.prepare(7, [incident()] * 3, 0)
    for group in range(100, 3000):
        sampler.prepare(group, [incident()], 0)
    assert len(sampler._seconds) <= 1001
    assert [each.left_out for each in sampler.prepare(7, [incident()], 9000)] == [2]
