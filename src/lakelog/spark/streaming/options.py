"""The options of `spark.readStream.format("lakelog")`, parsed with errors that say what is accepted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakelog.errors import InvalidRequest
from lakelog.model.group import DEFAULT_SESSION_MS, MAX_SESSION_MS, MIN_SESSION_MS
from lakelog.model.names import check_name
from lakelog.spark.options import STREAM_OPTIONS, known_options, topic_of
from lakelog.spark.reading.ranges import offsets_of

EARLIEST, LATEST = "earliest", "latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """The parsed options of a stream.

    `start` and `start_offsets` apply only without a checkpoint and without a position of the group.
    """

    topic: str
    group: str | None = None
    start: str = LATEST
    has_start: bool = False
    """True if the options say where to start."""
    start_offsets: Mapping[int, int] = field(default_factory=dict)
    max_messages: int | None = None
    session_ms: int = DEFAULT_SESSION_MS
    store: Mapping[str, str] = field(default_factory=dict, repr=False)


def parse_stream_options(options: Mapping[str, str]) -> StreamOptions:
    given, store = known_options(options, STREAM_OPTIONS, of="spark.readStream")
    group, offsets = given.get("group"), offsets_of(given.get("startoffsets"), "startOffsets")
    start = given.get("start", LATEST).lower()
    if start not in (EARLIEST, LATEST):
        raise InvalidRequest(f"Option `start` must be {EARLIEST} or {LATEST}, not {start!r}.")
    most = given.get("maxmessagespertrigger")
    return StreamOptions(
        topic=topic_of(given),
        group=None if group is None else check_name("group", group),
        start=start,
        has_start="start" in given or offsets is not None,
        start_offsets=offsets or {},
        max_messages=None if most is None else _number("maxMessagesPerTrigger", most, 1, 2**62),
        session_ms=_number("sessionMs", given.get("sessionms", DEFAULT_SESSION_MS), MIN_SESSION_MS, MAX_SESSION_MS),
        store=store,
    )


def _number(name: str, text: str | int, least: int, most: int) -> int:
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if not least <= number <= most:
        raise InvalidRequest(f"Option `{name}` is a number from {least} to {most}, not {text!r}.")
    return number
