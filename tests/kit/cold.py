"""Moves messages to the object store without Spark, for tests and benchmarks that need cold history."""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping

from lakelog import Lakelog
from lakelog.model.lake import Plan, RegisterStatus, TierRange
from lakelog.model.segment import Segment
from lakelog.objectstore import ObjectStore, open_store
from lakelog.segments.layout import segment_path
from lakelog.segments.reader import verify
from lakelog.segments.writer import SegmentWriter


def tier_by_hand(
    log: Lakelog,
    topic: str,
    *,
    segment_bytes: int = 128 << 20,
    options: Mapping[str, str] | None = None,
    unverified: Collection[int] = (),
) -> list[Segment]:
    """Write, register and verify every range that may be tiered. The hot batches stay.

    `options` configure the object store. The segments with the numbers `unverified` are only registered.
    """
    plan = log.lake.plan(topic)
    assert plan.store is not None, "the server has no object store"
    store = open_store(plan.store, options)
    ranges = log.lake.tierable(topic, segment_bytes=segment_bytes, min_bytes=1, min_age=0)
    made = [_written(log, store, plan, each) for each in ranges]
    answers = log.lake.register(topic, made)
    assert [answer.status for answer in answers] == [RegisterStatus.REGISTERED] * len(made), answers
    for segment in made:
        verify(store, segment)
    log.lake.verified(topic, [segment for number, segment in enumerate(made) if number not in unverified])
    return made


def _written(log: Lakelog, store: ObjectStore, plan: Plan, wanted: TierRange) -> Segment:
    sink = io.BytesIO()
    columns = log.topic(plan.topic).describe().columns
    with SegmentWriter(sink, wanted.partition, columns=columns) as writer:
        for batch in log.lake.read_range(plan.topic, wanted.partition, wanted.first, wanted.end):
            writer.write(batch)
        sealed = writer.close()
    place = (plan.environment_id, plan.incarnation, wanted.partition, wanted.first, wanted.end)
    path = segment_path(*place, columns=0 if columns is None else columns.version)
    store.put(path, sink.getvalue())
    return sealed.segment(path)
