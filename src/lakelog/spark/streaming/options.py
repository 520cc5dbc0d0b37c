"""The options of `spark.readStream.format("lakelog")`, parsed with errors that say what is accepted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from lakelog.client.reading.columns import DEFAULT_COLUMNS, Columns, columns_of
from lakelog.client.reading.limits import duration_of, offsets_of, time_of
from lakelog.errors import InvalidRequest
from lakelog.model.group import DEFAULT_SESSION_MS, MAX_SESSION_MS, MIN_SESSION_MS
from lakelog.model.limits import MAX_WAIT_MS
from lakelog.model.names import check_name
from lakelog.spark.kafka_options import from_kafka
from lakelog.spark.options import STREAM_OPTIONS, known_options, topic_of

EARLIEST, LATEST = "earliest", "latest"
DEFAULT_DELAY = "15 min"
DEFAULT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """The parsed options of a stream.

    `start` and `start_offsets` apply only without a checkpoint and without a position of the group.
    """

    topic: str
    group: str | None = None
    start: str = LATEST
    start_time: datetime | None = None
    """The time of the first message, instead of `start`."""
    has_start: bool = False
    """True if the options say where to start."""
    start_offsets: Mapping[int, int] = field(default_factory=dict)
    max_messages: int | None = None
    max_bytes: int | None = None
    """The stored bytes of a micro-batch, approximately."""
    min_messages: int = 1
    """A micro-batch waits for this many messages, but not longer than the maximum delay."""
    max_delay_seconds: float = 900.0
    fail_on_data_loss: bool = True
    session_ms: int = DEFAULT_SESSION_MS
    hand_over_bytes: int = DEFAULT_BYTES
    """A micro-batch up to this size is read by the driver. 0 for none."""
    idle_wait_ms: int | None = None
    """The wait of an idle source; None to choose it."""
    columns: Columns = DEFAULT_COLUMNS
    store: Mapping[str, str] = field(default_factory=dict, repr=False)


def parse_stream_options(options: Mapping[str, str]) -> StreamOptions:
    options = from_kafka(options, is_stream=True)
    given, store = known_options(options, STREAM_OPTIONS, of="spark.readStream")
    group, offsets = given.get("group"), offsets_of(given.get("startoffsets"), "startOffsets")
    start, start_time = _start(given.get("start", LATEST))
    most, least = given.get("maxmessagespertrigger"), given.get("minmessagespertrigger")
    size, wait = given.get("maxbytespertrigger"), given.get("idlewaitms")
    if "maxtriggerdelay" in given and least is None:
        raise InvalidRequest("Option `maxTriggerDelay` limits how long `minMessagesPerTrigger` waits. Set that too.")
    return StreamOptions(
        topic=topic_of(given),
        group=None if group is None else check_name("group", group),
        start=start,
        start_time=start_time,
        has_start="start" in given or offsets is not None,
        start_offsets=offsets or {},
        max_messages=None if most is None else _number("maxMessagesPerTrigger", most, 1, 2**62),
        max_bytes=None if size is None else _number("maxBytesPerTrigger", size, 1, 2**62),
        min_messages=1 if least is None else _number("minMessagesPerTrigger", least, 1, 2**62),
        max_delay_seconds=_delay(given.get("maxtriggerdelay", DEFAULT_DELAY)),
        fail_on_data_loss=_flag("failOnDataLoss", given.get("failondataloss", "true")),
        session_ms=_number("sessionMs", given.get("sessionms", DEFAULT_SESSION_MS), MIN_SESSION_MS, MAX_SESSION_MS),
        hand_over_bytes=_number("handOverBytes", given.get("handoverbytes", DEFAULT_BYTES), 0, 2**30),
        idle_wait_ms=None if wait is None else _number("idleWaitMs", wait, 0, MAX_WAIT_MS),
        columns=columns_of(given.get("columns")),
        store=store,
    )


def _flag(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise InvalidRequest(f"Option `{name}` must be true or false, not {text!r}.")
    return text.lower() == "true"


def _start(text: str) -> tuple[str, datetime | None]:
    if text.lower() in (EARLIEST, LATEST):
        return text.lower(), None
    try:
        return LATEST, time_of(text, "start")
    except InvalidRequest:
        raise InvalidRequest(
            f"Option `start` must be {EARLIEST}, {LATEST} or a time such as 2026-01-31T12:00:00Z or '1 hour' (ago), "
            f"not {text!r}."
        ) from None


def _delay(text: str) -> float:
    seconds = duration_of(text)
    if seconds is None:
        raise InvalidRequest(f"Option `maxTriggerDelay` is a duration such as '30 s' or '15 min', not {text!r}.")
    return seconds


def _number(name: str, text: str | int, least: int, most: int) -> int:
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if not least <= number <= most:
        raise InvalidRequest(f"Option `{name}` is a number from {least} to {most}, not {text!r}.")
    return number
