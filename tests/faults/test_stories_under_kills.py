"""Stories of messages, compared with what consumers did while servers were killed: no step is missing, none invented.

Full size: 10,000 messages, 4 consumers, 2 servers of which one is killed every 3 seconds.
2026-11-19, 2 cores, 13 kills: 15,570 deliveries, of which 5,266 did not end well or had failed before; all agree.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lakelog.model.group import Fixed
from prove.history.lease_lines import OwnerAnswer
from prove.history.lines import Said, Told
from prove.history.recorder import HistoryRecorder
from tests.faults.crews import drained, publish, settings_of
from tests.kit.fleet import Fleet
from tests.kit.lease_owner import HttpOwner, Unknown
from tests.kit.postgres import Cluster
from tests.kit.size import Size
from tests.kit.waiting import eventually

TOPIC, GROUP = "orders", "billing"
PARTITIONS = 4
LEASE_MS = 1000
SAID: Mapping[Said | None, int] = {"ack": 60, "nack": 20, "release": 6, "fail": 4, None: 10}
"""What a consumer says, of 100 messages. None: nothing, so that it is lost."""
NOT_OVER = {"leased", "ahead", "waiting", "blocked", "finished", "dead"}
"""Kinds of events that say no more than the beginning of a delivery or the present state."""

Place = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One delivery as its consumer saw it. `told` is None if it said nothing.

    `is_behind`: the lease had an earlier message of its key that was not acked, so that the message may have been given
    back, which is not recorded.
    """

    place: Place
    owner: str
    attempt: int
    said: Said | None
    told: Told | None
    is_behind: bool


class Consumer(threading.Thread):
    """Consumes until it is stopped, and answers at random."""

    def __init__(self, folder: Path, ports: Sequence[int], number: int) -> None:
        super().__init__(daemon=True)
        settings = settings_of(Fixed(max=3, seconds=0.05))
        self.owner = HttpOwner(HistoryRecorder(folder, f"w{number}"), ports, TOPIC, GROUP, settings=settings)
        self.seen: list[Seen] = []
        self.unknown = 0
        self.stopping = threading.Event()
        self._chance = random.Random(number)

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                leases = self.owner.consume(8, LEASE_MS, wait_ms=100)
            except Unknown:
                self.unknown += 1
                continue
            for lease in leases:
                said = self._chance.choices([*SAID], [*SAID.values()], k=len(lease.messages))
                answers = [
                    OwnerAnswer(verb=verb, partition=lease.partition, token=lease.token, offsets=(message.offset,))
                    for verb, message in zip(said, lease.messages, strict=True)
                    if verb is not None
                ]
                told = iter(self.owner.say(*answers) if answers else ())
                not_acked: set[str | None] = set()
                for verb, message in zip(said, lease.messages, strict=True):
                    outcome = None if verb is None else next(told)
                    self.seen.append(
                        Seen(
                            place=(lease.partition, message.offset),
                            owner=self.owner.owner,
                            attempt=message.delivery,
                            said=verb,
                            told=outcome,
                            is_behind=message.key in not_acked,
                        )
                    )
                    if (verb, outcome) != ("ack", "ok"):
                        not_acked.add(message.key)
        self.owner.close()


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_a_story_has_each_step_of_its_message_and_no_other(cluster: Cluster, tmp_path: Path, size: Size) -> None:
    count = size.pick(ci=1000, full=10_000)
    with Fleet(cluster) as fleet:
        fleet.create_topic(TOPIC, PARTITIONS)
        places = publish(fleet, TOPIC, [(f"k{number % (count // 2)}", f"{number}") for number in range(count)])
        consumers = [
            Consumer(tmp_path, fleet.ports[number % 2 :] + fleet.ports[: number % 2], number) for number in range(4)
        ]
        for consumer in consumers:
            consumer.start()
        asker = HttpOwner(HistoryRecorder(tmp_path, "asker"), fleet.ports, TOPIC, GROUP)
        kills = 0

        def finished() -> bool:
            nonlocal kills
            server = fleet.servers[kills % 2]
            server.kill9()
            server.restart()
            kills += 1
            return drained(asker.progress(), count)

        eventually(finished, within=1500, every=3)
        for consumer in consumers:
            consumer.stopping.set()
        for consumer in consumers:
            consumer.join()
        asker.close()
        incarnation = fleet.request("GET", f"/v1/topics/{TOPIC}")["incarnation"]
        stories = {
            place: _lane(fleet.request("GET", f"/v1/messages/{incarnation}-{place[0]}-{place[1]}/story?topic={TOPIC}"))
            for place in places
        }
    unsure = {consumer.owner.owner for consumer in consumers if consumer.unknown}
    deliveries: dict[Place, dict[int, Seen]] = {place: {} for place in places}
    for consumer in consumers:
        for each in consumer.seen:
            assert each.attempt not in deliveries[each.place], "an attempt has one consumer"
            deliveries[each.place][each.attempt] = each
    found: Counter[str] = Counter()
    for place, story in stories.items():
        found.update(_compared(deliveries[place], story, unsure))
    print(f"{count} messages, {kills} kills, {sum(map(len, deliveries.values()))} deliveries; ends in stories: {found}")
    assert found["failed"] and found["lost"] and found["died"] and found["acked"]


def _lane(story: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    (lane,) = story["lanes"]
    return [event for event in lane["events"] if event["kind"] not in NOT_OVER]


def _compared(seen: Mapping[int, Seen], story: Sequence[Mapping[str, Any]], unsure: Collection[str]) -> list[str]:
    """Compare the ends of deliveries in a story with what the consumers saw, and return their kinds."""
    told = {event["attempt"]: event for event in story}
    shown = f"{[*seen.values()]}\n{story}"
    assert len(told) == len(story), f"an attempt ended twice: {shown}"
    assert list(told) == sorted(told), f"out of order: {shown}"
    failed_before = False
    for attempt in sorted({*seen, *told}):
        event, each = told.get(attempt), seen.get(attempt)
        kind = None if event is None else event["kind"]
        if each is None:
            # The consumer does not know what it was granted, and the lease was lost.
            assert event is not None and event["owner"] in unsure and kind in ("lost", "died"), f"invented: {shown}"
        else:
            assert kind in _possible(each, failed_before), f"attempt {attempt}: {shown}"
            assert event is None or event["owner"] == each.owner, shown
        failed_before |= kind in ("failed", "lost")
    return [event["kind"] for event in story]


def _possible(seen: Seen, failed_before: bool) -> set[str | None]:
    """Return the kinds of events by which a story may tell the end of a delivery; None is no event."""
    ends: Mapping[Said | None, set[str | None]] = {
        "ack": {"acked" if failed_before else None},
        "nack": {"failed", "died"},
        "fail": {"died"},
        "release": {None},
    }
    lost: set[str | None] = {"lost", "died"}
    if seen.told == "ok":
        return ends[seen.said]
    if seen.is_behind:
        lost |= {None}
    return lost if seen.told in (None, "fail") else ends[seen.said] | lost
