"""Moves messages of a topic to files, again and again, without Spark: the same steps in the same order as its pipeline.

It may be killed anywhere, and two may work at once: what one left unverified the next settles.
"""

from __future__ import annotations

import io
import sys

import msgspec

import lakelog
from lakelog.client.lake_values import Plan, RegisterStatus, Segment, TierRange
from lakelog.errors import LakelogError
from lakelog.objectstore import ObjectStore, open_store
from lakelog.segments import SegmentWriter, segment_path, verify
from prove.lab.load.plan import Client, TiererPlan


class Tierer:
    """One topic; `tier` is one pass, and raises what went wrong."""

    def __init__(self, log: lakelog.Lakelog, plan: TiererPlan) -> None:
        self._log, self._plan = log, plan

    def tier(self) -> int:
        """How many segments count now that did not before."""
        topic = self._plan.topic
        plan = self._log.lake.plan(topic)
        assert plan.store is not None, "the servers have no object store"
        store = open_store(plan.store)
        done = self._settle(store, self._log.lake.unverified(topic))
        ranges = self._log.lake.tierable(
            topic, segment_bytes=self._plan.segment_bytes, min_bytes=self._plan.segment_bytes // 4, min_age=2.0
        )
        for wanted in ranges:
            segment = self._written(store, plan, wanted)
            (answer,) = self._log.lake.register(topic, [segment])
            if answer.status is not RegisterStatus.TAKEN:
                done += self._settle(store, [segment])
        return done

    def _written(self, store: ObjectStore, plan: Plan, wanted: TierRange) -> Segment:
        sink = io.BytesIO()
        with SegmentWriter(sink, wanted.partition) as writer:
            for batch in self._log.lake.read_range(plan.topic, wanted.partition, wanted.first, wanted.end):
                writer.write(batch)
            sealed = writer.close()
        path = segment_path(plan.environment_id, plan.incarnation, wanted.partition, wanted.first, wanted.end)
        store.put(path, sink.getvalue())
        return sealed.segment(path)

    def _settle(self, store: ObjectStore, segments: list[Segment]) -> int:
        for segment in segments:
            verify(store, segment)
        return sum(self._log.lake.verified(self._plan.topic, segments)) if segments else 0


def main(plan: bytes) -> None:
    asked = msgspec.json.decode(plan, type=TiererPlan)
    client = Client(asked)
    url = "http://" + ",".join(f"127.0.0.1:{port}" for port in asked.ports)
    with lakelog.connect(url, timeout=10) as log:
        tierer = Tierer(log, asked)
        while not client.stopped:
            try:
                print(f"{tierer.tier()} segments", flush=True)
            except LakelogError as error:
                print(f"not now: {error!r}", flush=True)
            client.rest(asked.every)


if __name__ == "__main__":
    main(sys.argv[1].encode())
