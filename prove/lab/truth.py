"""The final state that the servers report: every message, the progress of each group, its dead letters, and cuts.

It is read from the servers, bypassing all proxies, and written beside the histories.
"""

from __future__ import annotations

import http.client
import io
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import lakelog
from lakelog.errors import LakelogError, ObjectNotFound
from lakelog.model.lake import Plan
from lakelog.model.segment import Segment
from lakelog.objectstore import ObjectStore
from lakelog.segments.hashing import ContentHash
from lakelog.segments.layout import parse_segment_path
from lakelog.segments.schema import conform
from prove.history.lease_lines import UNRESPONSIVE
from prove.history.lines import identity_of
from prove.history.recorder import HistoryRecorder
from prove.history.tables import TABLES, CallOutcome, ReaderKind, TableColumns, columns, text_id
from prove.history.truth import write_truth
from prove.lab.load.calls import HttpCaller
from prove.lab.load.owner import LeaseOwner
from prove.lab.workload import CURSOR_GROUP, JOBS, ORDERS

if TYPE_CHECKING:
    from prove.lab.topology import Topology

NAME = "truth"
PATIENCE = 5.0
STRIDE = 1000
"""The number of offsets to skip after a position that cannot be read."""


class LabTruth:
    """Reads the final state once, and records the calls in its own history."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._hashes: dict[tuple[str, int, int], int] = {}
        """The content by offset, in topics whose dead letters are redriven."""
        self.messages = 0

    def write(self) -> None:
        url = f"http://127.0.0.1:{self._topology.servers[0].port}"
        with lakelog.connect(url, token=self._topology.token, timeout=PATIENCE) as log:
            for topic in self._topology.workload.partitions:
                described = self._topology.request("GET", f"/v1/topics/{topic}")
                plan = log.lake.plan(topic)
                for part in described["partition_list"]:
                    self._read(log, plan, part)
                self._cuts(topic, described["partition_list"])
                self._segments(plan)
        self._dead()
        self._progress()

    def _read(self, log: lakelog.Lakelog, plan: Plan, part: dict[str, int]) -> None:
        topic = plan.topic
        number, first, end = part["partition"], part["log_start"], part["high_watermark"]
        began = time.monotonic_ns()
        edges = {edge for each in plan.partitions[number].segments for edge in (each.first, each.end)}
        seen = _seen(_readable(log, topic, number, (first, end), edges), topic, number)
        self.messages += len(seen)
        if topic == JOBS:
            self._hashes |= {
                (topic, number, int(at)): int(what) for at, what in zip(seen.offset, seen.hash, strict=True)
            }
        read = {
            "outcome": int(CallOutcome.OK), "invoked_ns": began, "completed_ns": time.monotonic_ns(),
            "topic": text_id(topic), "partition": number, "offset": first, "reader": int(ReaderKind.FINAL),
            "first": first if len(seen) else -1, "count": len(seen), "log_start": first, "high_watermark": end,
            "process": text_id(NAME), "counter": -1,
        }  # fmt: skip
        write_truth(self._topology.folder, seen)
        write_truth(self._topology.folder, columns("read", [read]))

    def _segments(self, plan: Plan) -> None:
        """Write the segments that the servers report, and the content of the files, read with Parquet alone."""
        rows, live = [], set()
        topic, store = plan.topic, self._topology.store
        for part in plan.partitions:
            for segment in part.segments:
                row, table = _segment(store, segment)
                rows.append({**row, "topic": text_id(topic), "partition": part.partition})
                live.add(segment.path)
                if table is not None:
                    write_truth(
                        self._topology.folder, _seen(table.to_batches(), topic, part.partition, ReaderKind.COLD)
                    )
        rows += _orphans(store, f"e{plan.environment_id}/t{plan.incarnation}", live, topic)
        if rows:
            write_truth(self._topology.folder, columns("segment", rows))

    def _cuts(self, topic: str, parts: list[dict[str, int]]) -> None:
        """Write the cuts by retention. Topics have a limit by count, and no age limit."""
        rows = [
            {"topic": text_id(topic), "partition": part["partition"], "first": 0, "end": part["log_start"],
             "unfinished": -1, "at_ns": 1}
            for part in parts
            if part["log_start"] > 0
        ]  # fmt: skip
        if rows:
            write_truth(self._topology.folder, columns("cut", rows))

    def _progress(self) -> None:
        with HistoryRecorder(self._topology.folder / "history", NAME) as recorder:
            self._topology.recorded.append(NAME)
            caller = HttpCaller([server.port for server in self._topology.servers], 30.0, token=self._topology.token)
            for topic, group in self._topology.workload.all_groups:
                LeaseOwner(recorder, caller, topic, group, NAME).progress(final=True)
            try:
                told = self._topology.request("GET", f"/v1/groups/{CURSOR_GROUP}")["rebalances"]
                recorder.sample("rebalances", told, topic=ORDERS, group=CURSOR_GROUP)
            except RuntimeError as error:
                print(f"no server reports the rebalances of {CURSOR_GROUP}: {error}", flush=True)
            caller.close()

    def _dead(self) -> None:
        states = ("dead", "redriven", "discarded")
        groups = [(group.topic, group.name, state) for group in self._topology.workload.groups for state in states]
        rows = [row for asked in groups for row in self._letters(*asked)]
        write_truth(self._topology.folder, columns("dead", rows))

    def _letters(self, topic: str, group: str, state: str) -> Iterator[dict[str, Any]]:
        after = ""
        while True:
            path = f"/v1/groups/{group}/dead-letters?topic={topic}&state={state}&limit=1000{after}"
            page = self._topology.request("GET", path)
            for each in page["dead_letters"]:
                yield {
                    "topic": text_id(topic),
                    "partition": each["partition"],
                    "offset": int(each["id"].split("-")[2]),
                    "group": text_id(group),
                    "failures": each["failures"],
                    "deliveries": each["deliveries"],
                    "key": text_id(each.get("key")),
                    **self._copy(topic, each),
                }
            if page.get("next") is None:
                return
            after = f"&after={page['next']}"

    def _copy(self, topic: str, letter: dict[str, Any]) -> dict[str, Any]:
        """Return the target of a redriven dead letter, and whether the message there has the same bytes."""
        copied = letter.get("redriven_to")
        if copied is None:
            return {}
        _, partition, offset = (int(part) for part in copied.split("-"))
        place = int(letter["id"].split("-")[2])
        return {
            "redriven": 1, "copy_topic": text_id(topic), "copy_partition": partition, "copy_offset": offset,
            "hash": self._hashes.get((topic, letter["partition"], place), 0),
            "copy_hash": self._hashes.get((topic, partition, offset), 0),
        }  # fmt: skip


def left(topology: Topology) -> list[str]:
    """Return a text for each group that has not finished yet."""
    found = []
    for topic, group in topology.workload.all_groups:
        try:
            told = topology.request("GET", f"/v1/groups/{group}/lag", timeout=10)
        except (OSError, RuntimeError, http.client.HTTPException) as error:
            return [f"{group}: {error}"]
        for part in told["partitions"]:
            if part["topic"] != topic:
                continue
            if part["status"] == UNRESPONSIVE:
                found.append(f"{group} in {topic}/{part['partition']}: the cell does not respond")
            elif part["committed"] < part["high_watermark"]:
                found.append(
                    f"{group} in {topic}/{part['partition']}: {part['high_watermark'] - part['committed']} from "
                    f"{part['committed']} on, {part['leased']} leased, {part['waiting']} waiting"
                )
    return found


def _readable(
    log: lakelog.Lakelog, topic: str, partition: int, ends: tuple[int, int], edges: set[int]
) -> list[pa.RecordBatch]:
    """Yield all messages that the servers return.

    Messages that they cannot return, although everything runs, are lost; the checks report them.
    """
    found: list[pa.RecordBatch] = []
    at, end = ends
    while at < end:
        try:
            for batch in log.lake.read_range(topic, partition, at, end):
                found.append(batch)
                at = batch.column("offset")[-1].as_py() + 1
            return found
        except LakelogError as error:
            print(f"{topic}/{partition} cannot be read at {at}: {error!r}"[:300], flush=True)
            at = min([edge for edge in edges if edge > at] + [at + STRIDE])
    return found


def _segment(store: ObjectStore, segment: Segment) -> tuple[dict[str, Any], pa.Table | None]:
    row: dict[str, Any] = {
        "first": segment.first, "end": segment.end, "rows": segment.end - segment.first,
        "sealed_hash": text_id(segment.content_hash), "live": True, "exists": True,
    }  # fmt: skip
    try:
        table = pq.read_table(io.BytesIO(store.get(segment.path)))
    except ObjectNotFound:
        return {**row, "exists": False}, None
    except pa.ArrowInvalid:
        # It is not a Parquet file, and holds no messages.
        return row, None
    content = ContentHash()
    for batch in table.combine_chunks().to_batches():
        content.update(conform(batch))
    return {**row, "read_rows": table.num_rows, "read_hash": text_id(content.hexdigest())}, table


def _orphans(store: ObjectStore, folder: str, live: set[str], topic: str) -> Iterator[dict[str, Any]]:
    """Yield files that no live segment names: left by a killed driver, a lost response or two drivers."""
    for each in store.list(folder):
        path = parse_segment_path(each.path)
        if path is not None and each.path not in live:
            yield {
                "topic": text_id(topic), "partition": path.partition, "first": path.first, "end": path.end,
                "rows": path.end - path.first, "live": False, "exists": True,
            }  # fmt: skip


def _seen(
    batches: list[pa.RecordBatch], topic: str, partition: int, reader: ReaderKind = ReaderKind.FINAL
) -> TableColumns:
    offsets = [number for batch in batches for number in batch.column("offset").to_pylist()]
    values = [each for batch in batches for each in batch.column("value").to_pylist()]
    keys = [each for batch in batches for each in batch.column("key").to_pylist()]
    unique = [each for batch in batches for each in batch.column("idempotency_key").to_pylist()]
    told: dict[str, Any] = {
        "offset": offsets,
        "hash": [text_id(each) for each in values],
        "key": [text_id(each) for each in keys],
        "identity": [identity_of(each) for each in unique],
    }
    fixed = {"topic": text_id(topic), "partition": partition, "reader": int(reader), "process": text_id(NAME),
             "counter": -1, "completed_ns": time.monotonic_ns()}  # fmt: skip
    count = len(offsets)
    return TableColumns(
        "seen",
        {
            name: np.array(told[name], kind) if name in told else np.full(count, fixed.get(name, 0), kind)
            for name, kind in TABLES["seen"].items()
        },
    )
