"""A member that is stopped beyond its lease and its session, and then resumes: all its answers are refused (S9).

A refusal changes nothing: the journals of both groups are the same before and after.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from prove.checker.invariant import GroupRules
from prove.history.lease_lines import OwnerAnswer, SeenLease
from prove.history.recorder import HistoryRecorder
from tests.faults.crews import assert_leases_valid, lease_history, publish, truth_of
from tests.faults.stopped_member import Plan
from tests.kit.fleet import Fleet
from tests.kit.lease_owner import HttpOwner
from tests.kit.postgres import Cluster
from tests.kit.process import Supervisor
from tests.kit.waiting import eventually

TOPIC, GROUP, CURSOR = "orders", "billing", "export"
LEASE_MS, SESSION_MS = 1000, 3000
JOURNALS = "select group_id, pid, version, body from lakelog.journal order by 1, 2, 3"


def test_late_answers_of_a_stopped_member_are_refused_and_change_nothing(cluster: Cluster, tmp_path: Path) -> None:
    """S9, S17."""
    folder = tmp_path / "history"
    folder.mkdir()
    with Fleet(cluster) as fleet, Supervisor() as processes:
        database = fleet.url.rpartition("/")[2]
        fleet.create_topic(TOPIC, 2)
        places = publish(fleet, TOPIC, [(f"k{number}", f"good-{number}") for number in range(8)])
        plan = plan_of(fleet, folder, tmp_path)
        argv = [sys.executable, "-m", "tests.faults.stopped_member", msgspec.json.encode(plan).decode()]
        sleeper = processes.start(argv, name="member")
        eventually(lambda: Path(plan.ready).exists() or not sleeper.running, within=30)
        assert Path(plan.ready).exists(), sleeper.log_text()[-2000:]
        sleeper.stop()

        other = HttpOwner(HistoryRecorder(folder, "other"), fleet.ports[::-1], TOPIC, GROUP)
        cursor_generation = join(other, CURSOR, "cursor")
        join(other, GROUP, "lease")
        leases = take_all(other, len(places), member_id=other.owner)
        eventually(lambda: has_all(other, CURSOR, cursor_generation), within=20, what="the other has the partitions")
        generation = heartbeat(other, CURSOR, cursor_generation)["generation"]
        positions = [{"partition": number, "offset": 2} for number in range(2)]
        body = {"topic": TOPIC, "member_id": "other", "generation": generation, "positions": positions}
        assert other.call("POST", f"/v1/groups/{CURSOR}/positions", body)[0] == "ok"

        before = cluster.execute(JOURNALS, database=database)
        Path(plan.wake).touch()
        sleeper.cont()
        assert sleeper.wait(timeout=60) == 0, sleeper.log_text()[-2000:]
        assert cluster.execute(JOURNALS, database=database) == before, "a refusal changes nothing"
        told = json.loads(Path(plan.told).read_text())
        assert len(told) >= 20
        assert set(told.values()) == {"fail"}, told

        for lease in leases:
            assert set(other.say(*acks_of(lease))) == {"ok"}
        other.close()
        truth = truth_of(fleet, folder, TOPIC, GROUP, places, GroupRules())
    assert_leases_valid(lease_history(folder, truth))


def test_answers_after_the_end_of_the_lease_are_refused_without_another_owner(cluster: Cluster, tmp_path: Path) -> None:
    """S9: the end of a lease is a time, not the next owner."""
    folder = tmp_path / "history"
    folder.mkdir()
    with Fleet(cluster) as fleet, Supervisor() as processes:
        fleet.create_topic(TOPIC, 2)
        places = publish(fleet, TOPIC, [(f"k{number}", f"good-{number}") for number in range(8)])
        plan = msgspec.structs.replace(plan_of(fleet, folder, tmp_path), session_ms=60_000)
        argv = [sys.executable, "-m", "tests.faults.stopped_member", msgspec.json.encode(plan).decode()]
        sleeper = processes.start(argv, name="member")
        eventually(lambda: Path(plan.ready).exists() or not sleeper.running, within=30)
        sleeper.stop()
        over = time.monotonic() + LEASE_MS / 1000
        eventually(lambda: time.monotonic() > over, within=10)
        Path(plan.wake).touch()
        sleeper.cont()
        assert sleeper.wait(timeout=60) == 0, sleeper.log_text()[-2000:]
        told = json.loads(Path(plan.told).read_text())
        late = {what: outcome for what, outcome in told.items() if not what.startswith("commit")}
        assert len(late) >= 18
        assert set(late.values()) == {"fail"}, late
        other = HttpOwner(HistoryRecorder(folder, "other"), fleet.ports[::-1], TOPIC, GROUP)
        for lease in take_all(other, len(places)):
            assert [message.failures for message in lease.messages] == [0] * len(lease.messages)
            assert set(other.say(*acks_of(lease))) == {"ok"}
        other.close()
        truth = truth_of(fleet, folder, TOPIC, GROUP, places, GroupRules())
    assert_leases_valid(lease_history(folder, truth))


def plan_of(fleet: Fleet, folder: Path, tmp_path: Path) -> Plan:
    return Plan(
        topic=TOPIC,
        group=GROUP,
        cursor_group=CURSOR,
        ports=fleet.ports,
        name="sleeper",
        folder=str(folder),
        ready=str(tmp_path / "ready"),
        wake=str(tmp_path / "wake"),
        told=str(tmp_path / "told"),
        lease_ms=LEASE_MS,
        session_ms=SESSION_MS,
        settings={"start_from": "earliest"},
    )


def join(owner: HttpOwner, group: str, kind: str) -> int:
    body = {"topics": [TOPIC], "member_id": owner.owner, "session_timeout_ms": 60_000, "kind": kind}
    outcome, data, reason = owner.call("POST", f"/v1/groups/{group}/join", body)
    assert outcome == "ok", reason
    return int(data["generation"])


def heartbeat(owner: HttpOwner, group: str, generation: int) -> dict[str, Any]:
    body = {"member_id": owner.owner, "generation": generation}
    outcome, data, reason = owner.call("POST", f"/v1/groups/{group}/heartbeat", body)
    assert outcome == "ok", reason
    found: dict[str, Any] = data
    return found


def has_all(owner: HttpOwner, group: str, generation: int) -> bool:
    now = heartbeat(owner, group, heartbeat(owner, group, generation)["generation"])
    return bool(now["assigned_partitions"].get(TOPIC) == [0, 1])


def take_all(owner: HttpOwner, count: int, **more: Any) -> list[SeenLease]:
    """Lease the messages of the stopped member: suspects now, one in each lease."""
    leases: list[SeenLease] = []
    held = 0

    def got_all() -> bool:
        nonlocal held
        name = f"{owner.owner}-{len(leases)}"
        # It isolates suspects, so it may hold several.
        found = owner.consume(count, 60_000, wait_ms=1000, request_id=name, isolates=True, **more)
        leases.extend(found)
        held += sum(len(lease.messages) for lease in found)
        return held == count

    eventually(got_all, within=30, what=f"{count} messages leased again")
    return leases


def acks_of(lease: SeenLease) -> list[OwnerAnswer]:
    return [
        OwnerAnswer(verb="ack", partition=lease.partition, token=lease.token, offsets=(message.offset,))
        for message in lease.messages
    ]
