"""The load beside the tiering of a fault scenario: producers, a reader by fetches, and workers of a lease group.

Each message contains its producer and number, so that everything can be counted without storing it.
"""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Callable

import numpy as np
import pyarrow as pa

import lakelog
from benchmarks.lease_consumers import Consumer, transport_to
from lakelog.batches import decode
from lakelog.client.values import Consumed
from lakelog.errors import LeaseLost, OutcomeUnknown, PartlyPublished, Unavailable
from lakelog.model.ranges import from_ranges
from lakelog.segments.hashing import ContentHash
from lakelog.segments.schema import conform

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

    def end(self, within: float = 120, *, is_cut_off: bool = False) -> None:
        """End it. If it is cut off from its server, its last call may fail."""
        self._ended.set()
        self.join(within)
        assert not self.is_alive(), f"{self.name} does not end"
        if not (is_cut_off and isinstance(self.error, Unavailable | OutcomeUnknown | PartlyPublished)):
            self.check()


class Producer(Background):
    """Publishes the numbers from 0 to `count`, then ends; `pace` is the delay in seconds between two batches."""

    def __init__(self, url: str, topic: str, number: int, count: int, pace: float, timeout: float = 120) -> None:
        super().__init__(f"producer {number}")
        self._url, self._topic, self._number, self._pace = url, topic, number, pace
        self._timeout = timeout
        self.count = count
        self.done = 0

    def work(self) -> None:
        with lakelog.connect(self._url, timeout=self._timeout) as log:
            handle = log.topic(self._topic)
            while self.done < self.count and not self._ended.is_set():
                numbers = range(self.done, min(self.done + BATCH, self.count))
                values = [VALUE.pack(self._number, number) + PADDING for number in numbers]
                handle.publish_many([lakelog.Outgoing(value, key=value[:12]) for value in values])
                self.done += len(values)
                self._ended.wait(self._pace)


class Reader(Background):
    """Reads one partition from 0 on, continuing at its position; hashes the messages (S3, S22)."""

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


class Workers(Background):
    """An owner of a lease group with many messages at a time: which ones it was granted, and where."""

    def __init__(self, url: str, topic: str, group: str) -> None:
        super().__init__("workers")
        self._url, self._topic, self._group = url, topic, group
        self._seen: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    def work(self) -> None:
        asyncio.run(self._lease())

    async def _lease(self) -> None:
        async with transport_to(self._url) as transport:
            consumer = Consumer(
                transport=transport, topic=self._topic, group=self._group, batch=6000, wait_seconds=1.0, owner="tester"
            )
            while not self._ended.is_set():
                try:
                    consumed = await consumer.lease()
                    if consumed.leases:
                        self._look(consumed)
                        await consumer.ack(consumed)
                except (Unavailable, OutcomeUnknown, LeaseLost):
                    # Cold history that the store does not return now, or a lease that ended: the message is delivered
                    # again.
                    await asyncio.sleep(0.05)

    def _look(self, consumed: Consumed) -> None:
        payloads = iter(consumed.payloads)
        for lease in consumed.leases:
            for piece in lease.pieces:
                batch = decode(next(payloads))
                offsets = np.fromiter(from_ranges(piece.offsets), np.int64)
                if piece.whole:
                    batch = batch.take(pa.array(offsets - piece.base))
                self._seen.append((np.full(len(offsets), lease.partition), offsets, names_of(batch)))

    def lag(self) -> int:
        with lakelog.connect(self._url, timeout=120) as log:
            return int(log.group(self._group).lag())

    def seen(self, partition: int) -> np.ndarray:
        """Return the name of each message from offset 0 on; a repeated delivery has the same name (S3)."""
        places, found = self.deliveries(partition)
        assert np.array_equal(places, np.arange(len(places))), "each place once, with one message"
        return found

    def deliveries(self, partition: int) -> np.ndarray:
        """Return the offsets that were delivered, and the names of their messages, each pair once and in order."""
        parts, offsets, names = (np.concatenate(each) for each in zip(*self._seen, strict=True))
        pairs: np.ndarray = np.unique(np.stack([offsets, names])[:, parts == partition], axis=1)
        return pairs


def names_of(batch: pa.RecordBatch) -> np.ndarray:
    """Return producer and number of each message, as one number."""
    heads = np.array([value[: VALUE.size] for value in batch.column("value").to_pylist()], dtype=f"S{VALUE.size}")
    # numpy's `S` drops trailing zero bytes of a fixed-size string: take the numbers from the bytes.
    raw = b"".join(bytes(head).ljust(VALUE.size, b"\0") for head in heads)
    pairs = np.frombuffer(raw, dtype=np.dtype([("producer", ">u4"), ("number", ">u8")]))
    return (pairs["producer"].astype(np.int64) << 40) + pairs["number"].astype(np.int64)


def wait_for(condition: Callable[[], bool], threads: list[Background]) -> Callable[[], bool]:
    """Wait for the condition while all of them are healthy."""

    def look() -> bool:
        for thread in threads:
            thread.check()
        return condition()

    return look
