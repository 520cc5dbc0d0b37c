"""Continues the log of a restored database with the messages that newer files have.

A database that is restored from a backup ends earlier than the log did. Files that were written after the backup have
messages from its end on. They are appended at their offsets. Offsets that a file has seen and whose messages are lost
get placeholders that no group receives, so that no offset ever has two contents. No server may run at the same time.

Files of a load are used if a receipt says that the load was decided. The load is then known under its name again.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakelog import failpoints
from lakelog.errors import Conflict, ObjectNotFound, SegmentDamaged, UnsupportedFormat
from lakelog.model.lake import PartitionPlan, Plan
from lakelog.model.load import LoadRequest, LoadStatus, PartitionLoad
from lakelog.objectstore import ObjectStore, open_store
from lakelog.segments.day_files import DayFiles
from lakelog.segments.hashing import ContentHash
from lakelog.segments.layout import SegmentPath, parse_segment_path, topic_folder
from lakelog.segments.load_receipts import LoadReceipt, read_receipts, write_receipt
from lakelog.segments.reader import SegmentFile
from lakelog.segments.schema import SCHEMA, conform

if TYPE_CHECKING:
    from lakelog import Lakelog
    from lakelog.model.segment import Segment

LOST = "lakelog.lost"
"""The header of a placeholder."""
_PLACEHOLDER_ROWS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredTopic:
    """The result of restoring a topic, or of a dry run.

    Attributes:
        topic: The topic.
        messages: Messages of files that continue the log.
        lost: Offsets that files have seen, and that get placeholders.
        partitions: Partitions that were added, because files have messages of them.
        ignored: Files with messages behind the log that were not used, with the reason.
    """

    topic: str
    messages: int = 0
    lost: int = 0
    partitions: int = 0
    ignored: tuple[str, ...] = ()

    @property
    def is_nothing(self) -> bool:
        """True if the log of the database is the newest."""
        return not (self.messages or self.lost or self.partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A file in the store."""

    path: str
    bytes: int
    place: SegmentPath


@dataclass(frozen=True, slots=True, kw_only=True)
class _Range:
    """Offsets that are appended by one load, and its name; without a name, the load is one of this restore."""

    first: int
    end: int
    name: str = ""
    fingerprint: str = "00"


class TopicRestoration:
    """The restore of one topic."""

    def __init__(self, log: Lakelog, topic: str, store_options: Mapping[str, str] | None = None) -> None:
        self._log = log
        self._topic = topic
        self._options = store_options
        self._ignored: list[str] = []
        self._receipts: list[LoadReceipt] = []

    def run(self, *, dry_run: bool = False) -> RestoredTopic:
        """Append what files have more than the log, and return the result. A repeated call does nothing."""
        plan = self._log.lake.plan(self._topic)
        if plan.store is None:
            return RestoredTopic(topic=self._topic)
        store = open_store(plan.store, self._options)
        newer = self._newer_files(store, plan)
        if newer:
            self._receipts = read_receipts(store, topic_folder(plan.environment_id, plan.incarnation))
        added = max([0, *(number + 1 - len(plan.partitions) for number in newer)])
        done = RestoredTopic(topic=self._topic, partitions=added)
        if added and not dry_run:
            self._log.topic(self._topic).alter(partitions=len(plan.partitions) + added)
            plan = self._log.lake.plan(self._topic)
        parts = {part.partition: part for part in plan.partitions}
        for number, files in sorted(newer.items()):
            part = parts.get(number) or _empty(number)
            chain = self._chain(store, plan, part, files)
            top, end = max(each.place.end for each in files), max([part.high_watermark, *(e for _, _, e in chain)])
            done = replace(
                done,
                messages=done.messages + end - part.high_watermark,
                lost=done.lost + top - end,
                ignored=tuple(self._ignored),
            )
            if not dry_run:
                self._append(store, plan, part, chain, top)
        return done

    def _newer_files(self, store: ObjectStore, plan: Plan) -> dict[int, list[_Found]]:
        """Return the files that end behind the log, by partition."""
        ends = {part.partition: part.high_watermark for part in plan.partitions}
        found: dict[int, list[_Found]] = defaultdict(list)
        for each in store.list(topic_folder(plan.environment_id, plan.incarnation)):
            place = parse_segment_path(each.path)
            if place is not None and place.end > ends.get(place.partition, 0):
                found[place.partition].append(_Found(path=each.path, bytes=each.bytes, place=place))
        return found

    def _chain(
        self, store: ObjectStore, plan: Plan, part: PartitionPlan, files: Sequence[_Found]
    ) -> list[tuple[_Found, int, int]]:
        """Return the files that continue the log, each with the first offset and the end that are taken from it."""
        chain: list[tuple[_Found, int, int]] = []
        at = part.high_watermark
        left = sorted(files, key=lambda each: each.place.end, reverse=True)
        while fitting := next((each for each in left if each.place.first <= at < each.place.end), None):
            left.remove(fitting)
            reason = self._refusal(store, plan, part, fitting)
            if reason is not None:
                self._ignored.append(f"{fitting.path}: {reason}")
                continue
            chain.append((fitting, at, fitting.place.end))
            at = fitting.place.end
        return chain

    def _refusal(self, store: ObjectStore, plan: Plan, part: PartitionPlan, found: _Found) -> str | None:
        """Return why a file does not continue the log: it is damaged, was never part of the log, or differs from it."""
        first, end = max(found.place.first, part.log_start), min(found.place.end, part.high_watermark)
        content, shared = None, ContentHash()
        try:
            with _opened(store, found) as file:
                if file.is_loaded and not any(found.path in each.paths for each in self._receipts):
                    return "it was written by a load that did not finish"
                content = ContentHash(file.schema)
                for batch in file.read_as_written():
                    content.update(batch)
                if content.hexdigest() != file.content_hash:
                    return "its messages differ from the sealed ones"
                for batch in file.read(first, end) if first < end else ():
                    shared.update(conform(batch))
        except (SegmentDamaged, UnsupportedFormat, ObjectNotFound) as error:
            return error.detail
        known = ContentHash()
        if first < end:
            for batch in self._log.lake.read_range(
                self._topic, part.partition, first, end, incarnation=plan.incarnation
            ):
                known.update(conform(batch))
        return None if known.hexdigest() == shared.hexdigest() else "it differs from the log before the end of the log"

    def _append(
        self,
        store: ObjectStore,
        plan: Plan,
        part: PartitionPlan,
        chain: Sequence[tuple[_Found, int, int]],
        top: int,
    ) -> None:
        """Append the messages of the chain, and placeholders up to `top`. Loads keep their names."""
        at, end = part.high_watermark, chain[-1][2] if chain else part.high_watermark
        loads = [each for each in self._receipts if each.partition == part.partition]
        for load in sorted(loads, key=lambda each: each.first):
            if at <= load.first < load.end <= end:
                if at < load.first:
                    self._append_range(store, plan, part, chain, _Range(first=at, end=load.first))
                wanted = _Range(first=load.first, end=load.end, name=load.name, fingerprint=load.fingerprint)
                self._append_range(store, plan, part, chain, wanted)
                at = load.end
        if at < top:
            self._append_range(store, plan, part, chain, _Range(first=at, end=top))

    def _append_range(
        self,
        store: ObjectStore,
        plan: Plan,
        part: PartitionPlan,
        chain: Sequence[tuple[_Found, int, int]],
        wanted: _Range,
    ) -> None:
        now, at = self._log.lake.watermarks(self._topic).now, wanted.first
        with tempfile.TemporaryDirectory(prefix="lakelog-restore-") as folder:
            files = DayFiles(
                store=store, environment_id=plan.environment_id, incarnation=plan.incarnation, folder=Path(folder)
            )
            segments: list[Segment] = []
            for found, first, end in chain:
                if max(first, wanted.first) < min(end, wanted.end):
                    at = min(end, wanted.end)
                    with _opened(store, found) as file:
                        for batch in file.read(max(first, wanted.first), at):
                            segments += files.add(part.partition, _in_epoch(conform(batch), plan.epoch))
            for batch in _placeholders(part.partition, at, wanted.end, now, plan.epoch):
                segments += files.add(part.partition, batch)
            segments += files.close()
        load = PartitionLoad(
            partition=part.partition, first=wanted.first, segments=tuple(segments), fingerprint=wanted.fingerprint
        )
        name = wanted.name or f"restore-{now:%Y%m%d%H%M%S%f}"
        # Without it, a later restore from the same backup would not use these files. It comes before the decision: the
        # files have what was in the log, or placeholders, whether this run is killed here or not.
        write_receipt(
            store,
            topic_folder(plan.environment_id, plan.incarnation),
            LoadReceipt(
                name=name,
                partition=part.partition,
                first=wanted.first,
                end=wanted.end,
                fingerprint=wanted.fingerprint,
                paths=tuple(each.path for each in segments),
            ),
        )
        request = LoadRequest(topic=self._topic, name=name, incarnation=plan.incarnation, parts=[load], is_restore=True)
        (answer,) = self._log.lake.load(request)
        failpoints.hit("restore.loaded")
        if answer.status is not LoadStatus.LOADED:
            reason = answer.reason or f"A load '{name}' was decided before the backup."
            raise Conflict(
                f"Partition {part.partition} of topic '{self._topic}' was not restored: {reason} Stop all "
                "servers, and run it again.",
                topic=self._topic,
                partition=part.partition,
            )


def restore_topics(
    log: Lakelog, topics: Sequence[str], *, dry_run: bool = False, watch: Callable[[RestoredTopic], None]
) -> list[RestoredTopic]:
    """Restore topics, and return the result of each. `watch` is called with each result."""
    results = []
    for topic in topics:
        results.append(TopicRestoration(log, topic).run(dry_run=dry_run))
        watch(results[-1])
    return results


@contextmanager
def _opened(store: ObjectStore, found: _Found) -> Iterator[SegmentFile]:
    file = store.open_file(found.path, found.bytes)
    with SegmentFile(file) as opened:
        has = (opened.partition, opened.first, opened.end)
        if has != (found.place.partition, found.place.first, found.place.end):
            raise SegmentDamaged(f"{found.path} has partition {has[0]} and offsets {has[1]} to {has[2]}.")
        yield opened


def _empty(partition: int) -> PartitionPlan:
    return PartitionPlan(partition=partition, log_start=0, high_watermark=0, start=0, end=0, segments=(), hot_from=0)


def _in_epoch(messages: pa.RecordBatch, epoch: int) -> pa.RecordBatch:
    """Return the messages with the epoch that the topic has now.

    The restored database does not know when partitions were added. A message of a newer epoch would make its partition
    refuse every publisher, and a partition of a newer epoch refuses the message.
    """
    field = SCHEMA.field("epoch")
    return messages.set_column(
        SCHEMA.get_field_index("epoch"), field, pa.array(np.full(messages.num_rows, epoch, np.int32))
    )


def _placeholders(partition: int, first: int, end: int, now: datetime, epoch: int) -> Iterator[pa.RecordBatch]:
    """Yield messages without content that have expired: groups do not receive them."""
    for start in range(first, end, _PLACEHOLDER_ROWS):
        count = min(_PLACEHOLDER_ROWS, end - start)
        columns = {
            "partition": pa.array(np.full(count, partition, np.int32)),
            "offset": pa.array(np.arange(start, start + count, dtype=np.int64)),
            "appended_at": pa.array([now] * count, SCHEMA.field("appended_at").type),
            "epoch": pa.array(np.full(count, epoch, np.int32)),
            "headers": pa.array([[(LOST, "1")]] * count, SCHEMA.field("headers").type),
            "expires_at": pa.array([now] * count, SCHEMA.field("expires_at").type),
        }
        yield conform(pa.RecordBatch.from_pydict(columns))
