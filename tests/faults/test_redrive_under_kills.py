"""Redrives a cluster of dead letters through the forms of the console while the server and PostgreSQL are killed.

Each dead letter is redriven once, and the preview and the last page say how many. Full size: 50,000 dead letters.
2026-11-19, 2 cores, 14 kills: 48,750 redriven and 1,250 refused in 49 parts and 77 s; 10 forms were submitted again.
"""

from __future__ import annotations

import random
import re
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Thread
from typing import Any

import httpx
import pytest

import lakelog
from lakelog import Lakelog
from lakelog.console.pages.dead_letters import LOOKED_AT
from lakelog.console.redriving import PART
from lakelog.model.lease import ConsumeRequest, LeaseAnswer, Verb
from tests.kit.console_session import ConsoleSession, form_of, words
from tests.kit.fleet import Fleet
from tests.kit.postgres import Cluster
from tests.kit.size import Size

TOPIC, GROUP = "orders", "billing"
PARTITIONS = 4
CAUSES = ("ValueError: order {} has no total", "ConnectionError: db-{} refused", "KeyError: 'total'")
"""Of ten messages, eight die of the first cause, and one of each of the others."""
PATH = f"groups/{GROUP}/redrive"


def cause_of(number: int) -> int:
    return max(0, number % 10 - 7)


def value_of(number: int) -> object:
    """Return an object. Some have the field that the redrive sets, and some messages are a text, without fields."""
    if number % 50 == 2:
        return f"text {number}"
    return {"n": number, "total": 17} if number % 20 == 4 else {"n": number}


def bury(log: Lakelog, count: int) -> None:
    """Publish messages, and let the group fail all of them."""
    topic = log.topic(TOPIC)
    topic.create(partitions=PARTITIONS)
    for first in range(0, count, 10_000):
        numbers = range(first, min(count, first + 10_000))
        topic.publish_many(lakelog.Outgoing(value_of(number), partition=number % PARTITIONS) for number in numbers)
    group, died = log.group(GROUP), 0
    while died < count:
        wish = ConsumeRequest(topic=TOPIC, group=GROUP, owner="ann", max_messages=1000, start_from="earliest")
        for lease in group.consume(wish).leases:
            # Message n of a partition has offset n // PARTITIONS.
            offsets = list(lease.offsets())
            fails = [
                LeaseAnswer(
                    verb=Verb.FAIL,
                    partition=lease.partition,
                    token=lease.token,
                    offsets=tuple(at for at in offsets if cause_of(at * PARTITIONS + lease.partition) == cause),
                    reason=reason.format(died),
                )
                for cause, reason in enumerate(CAUSES)
            ]
            group.answer(TOPIC, "ann", [each for each in fails if each.offsets])
            died += len(offsets)


class Victims:
    """Kills the server and PostgreSQL in turn during some calls, and starts them again."""

    def __init__(self, fleet: Fleet, every: int) -> None:
        self._fleet = fleet
        self._every = every
        self._chance = random.Random(7)
        self._calls = 0
        self.kills = 0

    def beside(self, seconds: float) -> Thread:
        """Return a running thread that kills within these seconds, if it is time."""
        self._calls += 1
        is_due = self._calls % self._every == 0
        thread = Thread(target=self._kill_after, args=(self._chance.uniform(0, seconds),) if is_due else (None,))
        thread.start()
        return thread

    def _kill_after(self, seconds: float | None) -> None:
        if seconds is None:
            return
        time.sleep(seconds)
        if self.kills % 2:
            self._fleet.cluster.kill9()
            self._fleet.cluster.start(within=120)
        else:
            self._fleet.servers[0].restart(within=120)
        self.kills += 1


@dataclass(kw_only=True)
class Outcome:
    """What the forms of a redrive showed.

    Attributes:
        preview: The text of the preview.
        last: The text of the last page.
        parts: How many pages said how far the redrive got.
        lost: How often there was no such page, so that the form was submitted again.
    """

    preview: str
    last: str = ""
    parts: int = 0
    lost: int = 0


def redrive(session: ConsoleSession, victims: Victims, query: str) -> Outcome:
    """Preview, and submit the forms of the pages until the redrive has ended. Submit a form again after a failure."""
    page, seconds = session.get(f"{PATH}?{query}"), 0.2
    outcome, form = Outcome(preview=words(page)), form_of(page, PATH)
    while form is not None:
        thread, began = victims.beside(seconds), time.monotonic()
        try:
            answer = session.submit(form)
        except httpx.HTTPError:
            answer = None
        seconds = time.monotonic() - began
        thread.join()
        if answer is None or answer.status_code != 200:
            outcome.lost += 1
            continue
        outcome.parts += 1
        outcome.last, form = words(answer.text), form_of(answer.text, PATH)
    return outcome


def copies(log: Lakelog, count: int) -> Mapping[int, list[tuple[str, Any]]]:
    """Return the messages that were published after the first ones: by number, id and value."""
    topic, found = log.topic(TOPIC), defaultdict[int, list[tuple[str, Any]]](list)
    for part in topic.describe().partition_list:
        at = count // PARTITIONS
        while at < part.high_watermark:
            page = topic.fetch(part.partition, offset=at, limit=10_000)
            for message in page.messages:
                found[message.value["n"]].append((message.id, message.value))
            at = page.next_offset
    return found


def figure(text: str, pattern: str) -> int:
    """Return the number where the pattern has a #; 0 if the text does not match."""
    found = re.search(pattern.replace("#", r"([\d,]+)"), text)
    return int(found[1].replace(",", "")) if found else 0


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_each_dead_letter_of_a_cluster_is_redriven_once(size: Size) -> None:
    count, rate = size.pick(ci=(2500, 250), full=(62_500, PART))
    chosen = {number for number in range(count) if cause_of(number) == 0}
    refused = {number for number in chosen if isinstance(value_of(number), str)}
    with (
        Cluster() as cluster,
        Fleet(cluster, servers=1, authenticate=True, env={"LAKELOG_CONSOLE": "true"}) as fleet,
        lakelog.connect(url := f"http://127.0.0.1:{fleet.ports[0]}", token=fleet.token) as log,
        ConsoleSession(url, fleet.token or "") as session,
    ):
        began = time.monotonic()
        bury(log, count)
        buried = time.monotonic()
        letters = log.group(GROUP).dead_letters()
        first, *others = letters.clusters().clusters
        assert (first.count, sorted(each.count for each in others)) == (len(chosen), [count // 10] * 2)
        victims = Victims(fleet, size.pick(ci=2, full=4))
        query = f"cluster={first.fingerprint}&edit=set&field=total&value=17&rate={rate}"
        outcome = redrive(session, victims, query)
        done = time.monotonic()
        found = copies(log, count)
        ended = {each.offset * PARTITIONS + each.partition: each for each in letters.list(2 * count, state="redriven")}
        left = {each.offset * PARTITIONS + each.partition for each in letters.cluster(first.fingerprint)}
        after = {each.fingerprint: each.count for each in letters.clusters().clusters}
    print(f"buried in {buried - began:.0f} s, redriven in {done - buried:.0f} s; {victims.kills} kills")
    print(f"{outcome.parts} parts, {outcome.lost} submitted again; {outcome.last}")
    assert outcome.lost and victims.kills >= 2
    assert left == refused, "what cannot be edited stays, and nothing else of the cluster"
    assert after == {first.fingerprint: len(refused), **{each.fingerprint: each.count for each in others}}
    assert ended.keys() == found.keys() == chosen - refused
    for number, made in found.items():
        assert made == [(ended[number].redriven_to, {"n": number, "total": 17})]
    # The preview looks at the first dead letters, and the last page says how many there were of all.
    looked_at = sorted(chosen, key=lambda number: (number % PARTITIONS, number))[:LOOKED_AT]
    stays = len(refused.intersection(looked_at))
    same = sum(value_of(number) == {"n": number, "total": 17} for number in looked_at)
    assert figure(outcome.preview, "# dead letters match the cluster") == len(chosen)
    assert figure(outcome.preview, "# cannot be changed") == stays
    assert figure(outcome.preview, "# unchanged") == same
    assert figure(outcome.preview, "# changed") == len(looked_at) - same - stays
    assert figure(outcome.last, "Matched in the preview #") == len(chosen)
    assert figure(outcome.last, "Refused #") == len(refused)
    assert figure(outcome.last, "Redriven #") + figure(outcome.last, "# more (?:was|were) redriven by a part") == len(
        found
    )
