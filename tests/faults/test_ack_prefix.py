"""Acks in random order while servers are killed: the committed offset is the end of the finished prefix.

S10, S11, S14, S16; and a seek back while leases are open: their acks are refused, and all messages are delivered again,
once.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from prove.checker.invariant import GroupRules
from prove.history.lease_lines import OwnerAnswer, SeenLease
from prove.history.recorder import HistoryRecorder
from tests.faults.crews import assert_leases_valid, lease_history, publish, truth_of
from tests.kit.fleet import Fleet
from tests.kit.lease_owner import HttpOwner, Unknown
from tests.kit.postgres import Cluster
from tests.kit.size import Size

TOPIC, GROUP = "orders", "billing"
LEASE_MS = 120_000
SETTINGS = {"start_from": "earliest", "order": "none"}


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_the_committed_offset_is_the_finished_prefix_across_kills(cluster: Cluster, size: Size, tmp_path: Path) -> None:
    """S16: nothing is lost, and no acked message is delivered again; servers are killed repeatedly between acks."""
    total, kills = size.pick(ci=2_000, full=50_000), size.pick(ci=4, full=20)
    chance = random.Random(5)
    with Fleet(cluster) as fleet:
        fleet.create_topic(TOPIC, 2)
        places = publish(fleet, TOPIC, [(f"k{number}", f"good-{number}") for number in range(total)])
        owner = HttpOwner(HistoryRecorder(tmp_path, "w1"), fleet.ports, TOPIC, GROUP, settings=SETTINGS)
        sampler = HttpOwner(HistoryRecorder(tmp_path, "sampler"), fleet.ports, TOPIC, GROUP)
        done = 0
        kill_at = [total * (number + 1) // (kills + 1) for number in range(kills)]
        while done < total:
            waiting = [saying for lease in take(owner, done, min(1000, total - done)) for saying in acks_of(lease)]
            assert waiting, "there is more"
            chance.shuffle(waiting)
            while waiting:
                chosen, waiting = waiting[:50], waiting[50:]
                if kill_at and done >= kill_at[0]:
                    kill_at.pop(0)
                    server = fleet.servers[len(kill_at) % 2]
                    server.kill9()
                    done += say_until_known(owner, chosen)
                    server.restart()
                else:
                    done += say_until_known(owner, chosen)
                sampler.progress()
        assert take(owner, done, 10) == [], "nothing that was acked comes again"
        owner.close()
        sampler.close()
        truth = truth_of(fleet, tmp_path, TOPIC, GROUP, places, GroupRules())
    assert [part.committed for part in truth.progress] == [part.high_watermark for part in truth.progress]
    assert not kill_at
    assert_leases_valid(lease_history(tmp_path, truth))


def test_a_seek_back_refuses_open_leases_and_delivers_everything_again_once(
    cluster: Cluster, size: Size, tmp_path: Path
) -> None:
    """S9, S10 with a new position epoch."""
    total = size.pick(ci=500, full=3_500)
    with Fleet(cluster) as fleet:
        fleet.create_topic(TOPIC, 2)
        places = publish(fleet, TOPIC, [(f"k{number}", f"good-{number}") for number in range(total)])
        first = HttpOwner(
            HistoryRecorder(tmp_path, "w1"), fleet.ports, TOPIC, GROUP, settings={"start_from": "earliest"}
        )
        second = HttpOwner(HistoryRecorder(tmp_path, "w2"), fleet.ports[::-1], TOPIC, GROUP)
        leases = drain(first, total - 100)
        for lease in leases[: len(leases) // 2]:
            assert set(first.say(*acks_of(lease))) == {"ok"}
        held = leases[len(leases) // 2 :]
        late = drain(second, 100)
        assert late
        # The server that did not grant the lease.
        second.seek(position="earliest")
        for owner, lease in [*((first, lease) for lease in held), *((second, lease) for lease in late)]:
            offsets = tuple(message.offset for message in lease.messages)
            assert set(owner.say(*acks_of(lease))) == {"fail"}
            assert owner.say(saying("nack", lease, offsets)) == ["fail"]
            assert owner.say_one(saying("extend", lease)) == "fail"
        again = drain(second, total)
        for lease in again:
            assert set(second.say(*acks_of(lease))) == {"ok"}
        assert take(second, -1, 10) == []
        first.close()
        second.close()
        truth = truth_of(fleet, tmp_path, TOPIC, GROUP, places, GroupRules())
    got = [(lease.partition, message.offset) for lease in again for message in lease.messages]
    assert sorted(got) == sorted(places), "each message once"
    assert_leases_valid(lease_history(tmp_path, truth))


def saying(verb: str, lease: SeenLease, offsets: tuple[int, ...] = ()) -> OwnerAnswer:
    return OwnerAnswer(verb=verb, partition=lease.partition, token=lease.token, offsets=offsets)  # type: ignore[arg-type]


def acks_of(lease: SeenLease) -> list[OwnerAnswer]:
    """Return one lease for each message."""
    return [saying("ack", lease, (message.offset,)) for message in lease.messages]


def take(owner: HttpOwner, number: int, count: int) -> list[SeenLease]:
    """Repeat a consume whose response is lost with its id."""
    while True:
        try:
            return owner.consume(count, LEASE_MS, request_id=f"{owner.owner}-{number}-{count}")
        except Unknown:
            continue


def drain(owner: HttpOwner, count: int) -> list[SeenLease]:
    """Lease this number of messages in total, without answering."""
    found: list[SeenLease] = []
    left = count
    while left > 0 and (leases := take(owner, left, left)):
        found += leases
        left -= sum(len(lease.messages) for lease in leases)
    return found


def say_until_known(owner: HttpOwner, sayings: list[OwnerAnswer]) -> int:
    """Return the number of accepted acks: in the end, all of them."""
    left = sayings
    while left:
        outcomes = owner.say(*left)
        assert "fail" not in outcomes
        left = [each for each, outcome in zip(left, outcomes, strict=True) if outcome == "info"]
    return len(sayings)
