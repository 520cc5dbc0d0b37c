"""Which part of a topic a batch read wants, as options say it: parsed once, with errors that say what is accepted."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from lakelog.client.lake_values import PlanWish
from lakelog.errors import InvalidRequest
from lakelog.spark.reading.planning import Ranges

READ_OPTIONS = ("topic", "url", "token", "since", "until", "startOffsets", "endOffsets")
PINNED = "pinned"
"""Written by `lakelog.spark.topic`: exact ranges of a plan that is made already."""
STORE = "store."
"""Prefix of options for the object store, as `store.endpoint`; without them its environment counts (AWS_…)."""
_STREAM_OPTIONS = ("group", "start", "maxMessagesPerTrigger")

_UNITS = {"ms": 0.001, "second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_SHORT = {"s": "second", "sec": "second", "m": "minute", "min": "minute", "h": "hour", "d": "day", "w": "week"}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)", re.ASCII)

Time = str | datetime | timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """Exact ranges of one incarnation: whatever is appended later, this is what is read."""

    incarnation: int
    ranges: Ranges

    def text(self) -> str:
        ranges = {str(partition): list(pair) for partition, pair in self.ranges.items()}
        return json.dumps({"incarnation": self.incarnation, "ranges": ranges})

    @classmethod
    def of(cls, text: str) -> Pinned:
        found = json.loads(text)
        ranges = {int(partition): (first, end) for partition, (first, end) in found["ranges"].items()}
        return cls(incarnation=found["incarnation"], ranges=ranges)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadWish:
    """What the options of a batch read say."""

    topic: str
    wish: PlanWish
    pinned: Pinned | None = None
    store: Mapping[str, str] = field(default_factory=dict, repr=False)


def read_wish(options: Mapping[str, str], now: datetime | None = None) -> ReadWish:
    """Of the options of `spark.read.format("lakelog")`; names differ by more than case or are the same."""
    for name in options:
        if name.lower() in (stream.lower() for stream in _STREAM_OPTIONS):
            raise InvalidRequest(
                f"`{name}` is an option of spark.readStream; spark.read has {', '.join(READ_OPTIONS)}."
            )
    given, store = known_options(options, READ_OPTIONS, of="a read", besides=(PINNED,))
    pinned = given.get(PINNED)
    return ReadWish(
        topic=topic_of(given),
        wish=PlanWish(
            starts=offsets_of(given.get("startoffsets"), "startOffsets"),
            ends=offsets_of(given.get("endoffsets"), "endOffsets"),
            since=time_of(given.get("since"), "since", now),
            until=time_of(given.get("until"), "until", now),
        ),
        pinned=None if pinned is None else Pinned.of(pinned),
        store=store,
    )


def known_options(
    options: Mapping[str, str], names: Sequence[str], *, of: str, besides: Sequence[str] = ()
) -> tuple[dict[str, str], dict[str, str]]:
    """By name in lower case: the options, and those of the object store. One that is unknown is refused.

    `besides` are known too, but not for users.
    """
    known = {name.lower(): name for name in (*names, *besides)}
    given: dict[str, str] = {}
    store: dict[str, str] = {}
    for name, text in options.items():
        lower = name.lower()
        if lower.startswith(STORE):
            store[lower.removeprefix(STORE)] = text
        elif lower in known:
            given[lower] = text
        else:
            near = difflib.get_close_matches(lower, known, 1)
            hint = f" Is {known[near[0]]!r} meant?" if near else ""
            raise InvalidRequest(f"`{name}` is no option of {of}.{hint} There are {', '.join(names)}.")
    return given, store


def topic_of(options: Mapping[str, str]) -> str:
    topic = options.get("topic")
    if not topic:
        raise InvalidRequest("Say which topic: .option('topic', 'orders').")
    return topic


def time_of(text: Time | None, name: str, now: datetime | None = None) -> datetime | None:
    """`1 day` and `90 min` are that long ago; else a time in ISO 8601, which without a zone is UTC."""
    if text is None:
        return None
    if isinstance(text, timedelta):
        return (now or datetime.now(UTC)) - text
    if isinstance(text, datetime):
        if text.tzinfo is None:
            raise InvalidRequest(f"`{name}` needs a zone: give an aware datetime.")
        return text
    seconds = _seconds(text.strip().lower().removesuffix(" ago"))
    try:
        if seconds is not None:
            return (now or datetime.now(UTC)) - timedelta(seconds=seconds)
        time = datetime.fromisoformat(text.strip())
    except (ValueError, OverflowError):
        raise InvalidRequest(
            f"`{name}` is a time such as 2026-01-31T12:00:00Z, or how long ago, such as '1 day' or '90 min'; "
            f"not {text!r}."
        ) from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def offsets_of(given: str | Mapping[int, int] | None, name: str) -> dict[int, int] | None:
    """`{"0": 12, "1": 40}`: by partition. Partitions that are not named are read from their start, or to their end."""
    if given is None:
        return None
    try:
        found = json.loads(given) if isinstance(given, str) else given
        offsets = {int(partition): offset for partition, offset in found.items()}
    except (ValueError, TypeError, AttributeError):
        offsets = {-1: -1}
    if not all(partition >= 0 and _is_offset(offset) for partition, offset in offsets.items()):
        raise InvalidRequest(f'`{name}` gives an offset for each partition, as {{"0": 12, "1": 40}}; not {given!r}.')
    return offsets


def _is_offset(offset: object) -> bool:
    return isinstance(offset, int) and not isinstance(offset, bool) and offset >= 0


def _seconds(text: str) -> float | None:
    """Of `1 day`, `1h30m` or `90 minutes`; None if it is none of these."""
    parts = _DURATION.findall(text)
    if not parts or _DURATION.sub("", text).strip():
        return None
    total = 0.0
    for number, unit in parts:
        word = _SHORT.get(unit, unit)
        seconds = _UNITS.get(word) or _UNITS.get(word.removesuffix("s"))
        if seconds is None:
            return None
        total += float(number) * seconds
    return total
