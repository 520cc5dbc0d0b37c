"""What runs beside the tiering of a fault scenario: producers, a reader by fetches, and workers of a lease group.

Each message says who published it and as which number, so that everything can be counted without keeping it.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable

import numpy as np
import pyarrow as pa

import lakelog
from lakelog.segments import ContentHash, conform

VALUE = struct.Struct(">IQ")
PADDING = bytes(range(188))
BATCH = 500


class Background(threading.Thread):
    """A thread whose failure fails the test when it is joined."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._ended = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.work()
        except BaseException as error:
            self.error = error

    def work(self) -> None:
        raise NotImplementedError

    def check(self) -> None:
        if self.error is not None:
            raise AssertionError(f"{self.name} failed") from self.error

    def end(self, within: float = 120) -> None:
        self._ended.set()
        self.join(within)
        assert not self.is_alive(), f"{self.name} does not end"
        self.check()


class Producer(Background):
    """Publishes its numbers from 0 to `count`, then ends; `pace` seconds between two batches."""

    def __init__(self, url: str, topic: str, number: int, count: int, pace: float) -> None:
        super().__init__(f"producer {number}")
        self._url, self._topic, self._number, self._pace = url, topic, number, pace
        self.count = count
        self.done = 0

    def work(self) -> None:
        with lakelog.connect(self._url, timeout=120) as log:
            handle = log.topic(self._topic)
            while self.done < self.count and not self._ended.is_set():
                numbers = range(self.done, min(self.done + BATCH, self.count))
                values = [VALUE.pack(self._number, number) + PADDING for number in numbers]
                handle.publish_many([lakelog.Outgoing(value, key=value[:12]) for value in values])
                self.done += len(values)
                self._ended.wait(self._pace)


class Reader(Background):
    """Reads one partition from 0 on, always from where it was; hashes what it saw (S3, S22)."""

    def __init__(self, url: str, topic: str, partition: int) -> None:
        super().__init__(f"reader {partition}")
        self._url, self._topic, self._partition = url, topic, partition
        self._content = ContentHash()
        self.next = 0

    @property
    def hash(self) -> str:
        return self._content.hexdigest()

    def work(self) -> None:
        with lakelog.connect(self._url, timeout=120) as log:
            while True:
                last_time = self._ended.is_set()
                end = log.lake.watermarks(self._topic).ends[self._partition]
                for batch in log.lake.read_range(self._topic, self._partition, self.next, end):
                    offsets = batch.column("offset").to_numpy()
                    assert offsets[0] == self.next and (np.diff(offsets) == 1).all(), "no gap, no duplicate"
                    self._content.update(conform(batch))
                    self.next = int(offsets[-1]) + 1
                assert self.next == end
                if last_time:
                    return
                self._ended.wait(0.2)


class Workers:
    """Workers of a lease group in this process; which numbers they were given, and where."""

    def __init__(self, url: str, topic: str, group: str) -> None:
        self._log = lakelog.connect(url, timeout=120)
        self._guard = threading.Lock()
        self.seen: dict[tuple[int, int], bytes] = {}
        self.group = group

        @self._log.topic(topic).subscribe(group=group, start_from="earliest", concurrency=8)
        def take(value: bytes, delivery: lakelog.Delivery[bytes]) -> None:
            place = (delivery.partition, delivery.offset)
            with self._guard:
                before = self.seen.setdefault(place, value[: VALUE.size])
            assert before == value[: VALUE.size], "a place holds one message (S3)"

    def start(self) -> None:
        self._log.start()

    def lag(self) -> int:
        return int(self._log.group(self.group).lag())

    def stop(self) -> None:
        self._log.stop()
        self._log.close()


def names_of(batch: pa.RecordBatch) -> np.ndarray:
    """Producer and number of each message, as one number."""
    heads = np.array([value[: VALUE.size] for value in batch.column("value").to_pylist()], dtype=f"S{VALUE.size}")
    # Zero bytes at the end of a fixed-size string are lost to numpy's `S`; so take the numbers from the bytes.
    raw = b"".join(bytes(head).ljust(VALUE.size, b"\0") for head in heads)
    pairs = np.frombuffer(raw, dtype=np.dtype([("producer", ">u4"), ("number", ">u8")]))
    return (pairs["producer"].astype(np.int64) << 40) + pairs["number"].astype(np.int64)


def wait_for(condition: Callable[[], bool], threads: list[Background]) -> Callable[[], bool]:
    """The condition, and that all of them are well."""

    def look() -> bool:
        for thread in threads:
            thread.check()
        return condition()

    return look
