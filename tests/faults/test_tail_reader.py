"""A tail reader beside many publishers: it sees every message, in order, without gaps, at most a second late.

Full size: 300,000 messages from 16 publishers at two servers. 2026-11-15, 2 cores: at most 0.32 s late.
"""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from datetime import datetime

import pytest

from tests.kit.fleet import Fleet
from tests.kit.postgres import Cluster
from tests.kit.size import Size

PUBLISHERS = 16
PARTITIONS = 4
BEHIND_SECONDS = {Size.CI: 20.0, Size.FULL: 1.0}
"""At ci size, the machine is shared, and may stop for seconds."""


class Publisher(threading.Thread):
    """Publishes batches of mixed size to one server."""

    def __init__(self, port: int, number: int, messages: int) -> None:
        super().__init__()
        self._port, self._number, self._left = port, number, messages
        self.acked: list[list[tuple[int, str]]] = [[] for _ in range(PARTITIONS)]
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self._publish()
        except BaseException as error:
            self.error = error

    def _publish(self) -> None:
        chance = random.Random(self._number)
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        sent = 0
        while self._left:
            count = min(self._left, chance.choice([1, 1, 2, 10, 100, 1000]))
            values = [f"{self._number}:{sent + at}" for at in range(count)]
            partition = chance.randrange(PARTITIONS)
            body = json.dumps({"messages": [{"value": value, "partition": partition} for value in values]})
            connection.request("POST", "/v1/topics/tailed/messages", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            data = json.loads(answer.read())
            assert answer.status == 200, data
            places = [(result["offset"], value) for result, value in zip(data["results"], values, strict=True)]
            self.acked[partition] += places
            sent += count
            self._left -= count
        connection.close()


class TailReader(threading.Thread):
    """Follows one partition with long polls, and notes the age of each message on arrival."""

    def __init__(self, port: int, partition: int, stop: threading.Event) -> None:
        super().__init__()
        self._port, self._partition, self._stop_at = port, partition, stop
        self.seen: list[str] = []
        self.slowest = 0.0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self._read()
        except BaseException as error:
            self.error = error

    def _read(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        while True:
            last_look = self._stop_at.is_set()
            path = f"/v1/topics/tailed/partitions/{self._partition}/messages"
            connection.request("GET", f"{path}?offset={len(self.seen)}&limit=10000&wait_ms=500")
            answer = connection.getresponse()
            data = json.loads(answer.read())
            assert answer.status == 200, data
            for message in data["messages"]:
                assert message["offset"] == len(self.seen), "an offset was skipped or came twice (S6)"
                self.seen.append(message["value"])
            if data["messages"]:
                oldest = data["messages"][0]["appended_at"]
                self.slowest = max(self.slowest, time.time() - _seconds(oldest))
            elif last_look:
                break
        connection.close()


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@pytest.mark.timeout(900)
def test_the_tail_is_whole_in_order_and_at_hand(cluster: Cluster, size: Size) -> None:
    """S6: no message is skipped at the tail. Database and reader share the clock of this machine, so delays can be
    measured.
    """
    total = size.pick(ci=30_000, full=300_000)
    with Fleet(cluster) as fleet:
        fleet.create_topic("tailed", PARTITIONS)
        stop = threading.Event()
        readers = [TailReader(fleet.ports[number % 2], number, stop) for number in range(PARTITIONS)]
        share = total // PUBLISHERS
        publishers = [Publisher(fleet.ports[number % 2], number, share) for number in range(PUBLISHERS)]
        for thread in (*readers, *publishers):
            thread.start()
        for publisher in publishers:
            publisher.join()
        stop.set()
        for reader in readers:
            reader.join()
    workers: list[TailReader | Publisher] = [*readers, *publishers]
    for thread in workers:
        if thread.error:
            raise thread.error
    for partition, reader in enumerate(readers):
        for publisher in publishers:
            for offset, value in publisher.acked[partition]:
                assert reader.seen[offset] == value, "what was acked at an offset was read there (S1, S3)"
    assert sum(len(reader.seen) for reader in readers) == share * PUBLISHERS
    slowest = max(reader.slowest for reader in readers)
    print(f"{share * PUBLISHERS} messages, the tail was at most {slowest:.3f} s behind")
    assert slowest < BEHIND_SECONDS[size]
