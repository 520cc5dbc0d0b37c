"""The names of Kafka's source as aliases, so that a job moves by changing its format and its server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime

from lakelog.errors import InvalidRequest

READ_ALIASES = ("subscribe", "startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp")
STREAM_ALIASES = ("subscribe", "startingOffsets", "startingTimestamp", "maxOffsetsPerTrigger", "minOffsetsPerTrigger")

_PLAIN = {
    "maxoffsetspertrigger": "maxMessagesPerTrigger",
    "minoffsetspertrigger": "minMessagesPerTrigger",
}
_EARLIEST, _LATEST = -2, -1
_WORDS = {"earliest": _EARLIEST, "latest": _LATEST}


def from_kafka(options: Mapping[str, str], *, is_stream: bool) -> dict[str, str]:
    """Return the options under the names of Lakelog. Values are translated where Kafka's have another form."""
    aliases = {name.lower(): name for name in (STREAM_ALIASES if is_stream else READ_ALIASES)}
    found = {name: text for name, text in options.items() if name.lower() not in aliases}
    own = {name.lower() for name in found}
    for name, text in options.items():
        if name.lower() not in aliases:
            continue
        for ours, translated in _translated(name.lower(), text, options, is_stream=is_stream).items():
            if ours.lower() in own:
                raise InvalidRequest(
                    f"Option `{aliases[name.lower()]}` is Kafka's name of `{ours}`, which is given too. Remove one."
                )
            found[ours] = translated
    return found


def starts_a_stream(options: Mapping[str, str]) -> bool:
    """Return whether `startingOffsets` has a value that only a stream accepts."""
    return any(name.lower() == "startingoffsets" and text.lower() == "latest" for name, text in options.items())


def _translated(name: str, text: str, options: Mapping[str, str], *, is_stream: bool) -> dict[str, str]:
    if name == "subscribe":
        if "," in text:
            raise InvalidRequest("Option `subscribe` names several topics. A source of Lakelog reads one; use union().")
        return {"topic": text}
    if name in _PLAIN:
        return {_PLAIN[name]: text}
    if name == "startingtimestamp":
        return {"start" if is_stream else "since": _time(text, "startingTimestamp")}
    if name == "endingtimestamp":
        return {"until": _time(text, "endingTimestamp")}
    if name == "endingoffsets":
        return _offsets("endingOffsets", text, options, default=_LATEST, ours="endOffsets")
    if not is_stream:
        return _offsets("startingOffsets", text, options, default=_EARLIEST, ours="startOffsets")
    return _stream_start(text, options)


def _stream_start(text: str, options: Mapping[str, str]) -> dict[str, str]:
    if text.lower() in _WORDS:
        return {"start": text.lower()}
    offsets = _by_partition("startingOffsets", text, options)
    words = {offset for offset in offsets.values() if offset < 0}
    if len(words) > 1:
        raise InvalidRequest("Option `startingOffsets` mixes -1 (latest) and -2 (earliest). Use one of them.")
    named = {str(partition): offset for partition, offset in offsets.items() if offset >= 0}
    start = {word: name for name, word in _WORDS.items()}
    return {
        **({"start": start[next(iter(words))]} if words else {}),
        **({"startOffsets": json.dumps(named)} if named else {}),
    }


def _offsets(name: str, text: str, options: Mapping[str, str], *, default: int, ours: str) -> dict[str, str]:
    """Return the offsets of a batch read, whose first or last offset is the default of other partitions."""
    offsets = {0: _WORDS[text.lower()]} if text.lower() in _WORDS else _by_partition(name, text, options)
    refused = {offset for offset in offsets.values() if offset < 0} - {default}
    if refused:
        word = next(each for each, number in _WORDS.items() if number == default)
        raise InvalidRequest(f"Option `{name}` of a batch read is `{word}` ({default}) or offsets, not {text!r}.")
    named = {str(partition): offset for partition, offset in offsets.items() if offset >= 0}
    return {ours: json.dumps(named)} if named else {}


def _by_partition(name: str, text: str, options: Mapping[str, str]) -> dict[int, int]:
    topic = next((given for key, given in options.items() if key.lower() in ("topic", "subscribe")), None)
    try:
        found = json.loads(text)
        if topic is not None and set(found) == {topic}:
            offsets = {int(partition): int(offset) for partition, offset in found[topic].items()}
            if all(offset >= _EARLIEST for offset in offsets.values()):
                return offsets
    except (ValueError, TypeError, AttributeError):
        pass
    form = json.dumps({topic or "orders": {"0": 12, "1": -2}})
    raise InvalidRequest(f"`{name}` is earliest, latest, or the offsets of the topic, as {form}; not {text!r}.")


def _time(text: str, name: str) -> str:
    try:
        return datetime.fromtimestamp(int(text) / 1000, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        raise InvalidRequest(f"Option `{name}` is a time in milliseconds since 1970, not {text!r}.") from None
