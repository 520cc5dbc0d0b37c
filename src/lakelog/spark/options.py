"""The options of `format("lakelog")`: the names for reads, streams and writes, and the error for unknown names.

`reading.ranges`, `streaming.options` and `writing.sink` parse the values.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from lakelog.errors import InvalidRequest
from lakelog.model.names import check_name
from lakelog.spark.kafka_options import READ_ALIASES, STREAM_ALIASES, starts_a_stream

READ_OPTIONS = ("topic", "url", "token", "since", "until", "startOffsets", "endOffsets", "columns", "forGroup")
STREAM_OPTIONS = (
    "topic",
    "group",
    "url",
    "token",
    "start",
    "startOffsets",
    "maxMessagesPerTrigger",
    "maxBytesPerTrigger",
    "failOnDataLoss",
    "minMessagesPerTrigger",
    "maxTriggerDelay",
    "sessionMs",
    "idleWaitMs",
    "handOverBytes",
    "columns",
)
WRITE_OPTIONS = ("topic", "url", "token", "writeId", "writeKind")
DEAD_LETTER_OPTIONS = ("topic", "deadLetters", "url", "token")

PINNED = "pinned"
"""Set by `lakelog.spark.topic`: the exact ranges of an existing plan."""
SPARK_SINK_OPTIONS = ("checkpointLocation", "queryName")
"""Options of a streaming query that Spark passes to the sink too."""
STORE = "store."
"""The prefix of options for the object store, such as `store.endpoint`. Their default is the environment (AWS_…)."""

_USES: Mapping[str, Sequence[str]] = {
    "spark.read": READ_OPTIONS,
    "spark.readStream": STREAM_OPTIONS,
    "a read of dead letters": DEAD_LETTER_OPTIONS,
    "a write": WRITE_OPTIONS,
}


def known_options(
    options: Mapping[str, str], names: Sequence[str], *, of: str, besides: Sequence[str] = ()
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the options by lower-case name, and those of the object store. An unknown name is an error.

    The names in `besides` are accepted too, but not suggested to users.
    """
    known = {name.lower() for name in (*names, *besides)}
    given: dict[str, str] = {}
    store: dict[str, str] = {}
    for name, text in options.items():
        lower = name.lower()
        if lower.startswith(STORE):
            store[lower.removeprefix(STORE)] = text
        elif lower in known:
            given[lower] = text
        else:
            raise _unknown(name, names, of)
    return given, store


def topic_of(options: Mapping[str, str]) -> str:
    """Return the option `topic`, a valid name."""
    topic = options.get("topic")
    if not topic:
        raise InvalidRequest("Option `topic` is missing. Name the topic: .option('topic', 'orders').")
    return check_name("topic", topic)


def is_stream(options: Mapping[str, str]) -> bool:
    """Return whether the options of a `load()` are those of `spark.readStream` only.

    At `load()`, Spark does not say whether the source is read as a table or as a stream. A name that neither accepts is
    an error, and so is a combination that neither accepts.
    """
    given = {name.lower(): name for name in options if not name.lower().startswith(STORE)}
    read = _lower(READ_OPTIONS) | _lower(READ_ALIASES) | {PINNED}
    stream = _lower(STREAM_OPTIONS) | _lower(STREAM_ALIASES)
    for lower, name in given.items():
        if lower not in read | stream:
            every = tuple(dict.fromkeys((*READ_OPTIONS, *STREAM_OPTIONS)))
            raise _unknown(name, every, "spark.read and spark.readStream")
    of_read = sorted(name for lower, name in given.items() if lower not in stream)
    of_stream = sorted(name for lower, name in given.items() if lower not in read)
    if of_read and of_stream:
        raise InvalidRequest(
            f"Option `{of_read[0]}` is only for spark.read, and option `{of_stream[0]}` only for spark.readStream. "
            "Remove one of them."
        )
    return bool(of_stream) or starts_a_stream(options)


def _unknown(name: str, names: Sequence[str], of: str) -> InvalidRequest:
    elsewhere = [use for use, known in _USES.items() if name.lower() in _lower(known)]
    near = difflib.get_close_matches(name.lower(), [each.lower() for each in names], 1)
    if name.lower() == "path":
        # `load("orders")` and `save("orders")` set this option.
        hint = " A topic has no path: name it with .option('topic', 'orders')."
    elif name.lower().startswith("kafka."):
        hint = " It is an option of Kafka's source. Name the server with `url`."
    elif elsewhere:
        hint = f" It is an option of {' and '.join(elsewhere)}."
    elif near:
        hint = f" Did you mean `{next(each for each in names if each.lower() == near[0])}`?"
    else:
        hint = ""
    return InvalidRequest(f"Unknown option `{name}` for {of}.{hint} Known options: {', '.join(names)}.")


def _lower(names: Sequence[str]) -> set[str]:
    return {name.lower() for name in names}
