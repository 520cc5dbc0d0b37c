"""The options that select a part of a topic for a batch read, parsed with errors that say what is accepted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from lakelog.client.reading.columns import DEFAULT_COLUMNS, Columns, columns_of
from lakelog.client.reading.limits import offsets_of, time_of
from lakelog.client.reading.read_ranges import Ranges
from lakelog.model.lake import PlanOptions
from lakelog.model.names import check_name
from lakelog.spark.kafka_options import from_kafka
from lakelog.spark.options import PINNED, READ_OPTIONS, known_options, topic_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedRanges:
    """Exact ranges of one incarnation of a topic, independent of messages that are appended later."""

    incarnation: int
    ranges: Ranges

    def text(self) -> str:
        return msgspec.json.encode(self).decode()

    @classmethod
    def of(cls, text: str) -> ResolvedRanges:
        return msgspec.json.decode(text, type=cls)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The parsed options of a batch read."""

    topic: str
    plan: PlanOptions
    pinned: ResolvedRanges | None = None
    columns: Columns = DEFAULT_COLUMNS
    for_group: str | None = None
    store: Mapping[str, str] = field(default_factory=dict, repr=False)


def parse_read_options(options: Mapping[str, str], now: datetime | None = None) -> ReadOptions:
    """Return the parsed options of `spark.read.format("lakelog")`, whose names are case-insensitive."""
    options = from_kafka(options, is_stream=False)
    given, store = known_options(options, READ_OPTIONS, of="spark.read", besides=(PINNED,))
    pinned, group = given.get(PINNED), given.get("forgroup")
    return ReadOptions(
        topic=topic_of(given),
        plan=PlanOptions(
            starts=offsets_of(given.get("startoffsets"), "startOffsets"),
            ends=offsets_of(given.get("endoffsets"), "endOffsets"),
            since=time_of(given.get("since"), "since", now),
            until=time_of(given.get("until"), "until", now),
        ),
        pinned=None if pinned is None else ResolvedRanges.of(pinned),
        columns=columns_of(given.get("columns")),
        for_group=None if group is None else check_name("group", group),
        store=store,
    )
