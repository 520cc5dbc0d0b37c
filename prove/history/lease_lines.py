"""Conversion of leases and answers between the JSON of the HTTP API and the lines of a history. It makes no calls."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from prove.history.lines import Got, LeaseSeen, Line, ProgressSeen, Said, Told
from prove.history.tables import text_id

UNRESPONSIVE = "unresponsive"
"""The status of a partition whose cell does not respond: its figures are 0, because they are not known."""


@dataclass(frozen=True, kw_only=True)
class SeenMessage:
    """One leased message."""

    offset: int
    key: str | None
    value: bytes
    delivery: int
    failures: int


@dataclass(frozen=True, kw_only=True)
class SeenLease:
    """Leased messages of one partition."""

    partition: int
    token: int
    expires_ms: int
    suspect: bool
    messages: Sequence[SeenMessage]


@dataclass(frozen=True, kw_only=True)
class OwnerAnswer:
    """One answer to send."""

    verb: Said
    partition: int
    token: int
    offsets: tuple[int, ...] = ()
    delay_ms: int | None = None
    lease_ms: int = 5000

    def body(self) -> dict[str, Any]:
        body: dict[str, Any] = {"verb": self.verb, "partition": self.partition, "token": self.token}
        if self.offsets:
            body["offsets"] = list(self.offsets)
        if self.delay_ms is not None:
            body["delay_ms"] = self.delay_ms
        if self.verb == "extend":
            body["lease_ms"] = self.lease_ms
        return body


def answer_line(topic: str, group: str, owner: str, saying: OwnerAnswer) -> Line:
    """Return the line that is written before an answer is sent."""
    return Line(
        kind="invoke",
        op=saying.verb,
        topic=topic,
        group=group,
        owner=owner,
        partition=saying.partition,
        token=saying.token,
        # An extend applies to the whole lease, whatever it names.
        offsets=() if saying.verb == "extend" else saying.offsets,
        delay_ms=saying.delay_ms,
    )


def outcome_lines(outcome: Told, data: Any, reason: str, count: int) -> list[Line]:
    """Return the lines that are written after answers were sent."""
    if outcome != "ok":
        return [Line(kind=outcome, reason=reason)] * count
    return [_answered(each) for each in data["results"]]


def outcome_of_line(line: Line) -> Told:
    """Return the outcome of one answer."""
    return "ok" if line.kind == "ok" else "fail" if line.kind == "fail" else "info"


def lease_of(told: dict[str, Any]) -> SeenLease:
    messages = [
        SeenMessage(
            offset=each["offset"],
            key=each.get("key"),
            value=value_of(each),
            delivery=each["delivery"],
            failures=each["failures"],
        )
        for each in told["messages"]
    ]
    return SeenLease(
        partition=told["partition"],
        token=told["token"],
        expires_ms=milliseconds(told["expires_at"]),
        suspect=told["suspect"],
        messages=messages,
    )


def value_of(told: dict[str, Any]) -> bytes:
    """Return the bytes of a message from either JSON form."""
    return str(told["value"]).encode() if "value" in told else base64.b64decode(told["value_base64"])


def seen_of(lease: SeenLease) -> LeaseSeen:
    got = tuple(
        [
            Got(each.offset, each.delivery, each.failures, text_id(each.value), text_id(each.key))
            for each in lease.messages
        ]
    )
    return LeaseSeen(lease.partition, lease.token, lease.expires_ms, lease.suspect, got)


def progress_of(data: Any, topic: str, start: int) -> list[ProgressSeen]:
    """Return the progress from a group's lag. The lag is requested without the topic, because it would otherwise show a
    start position for a group that has not begun. Nothing is known of partitions whose cell does not respond."""
    names = ProgressSeen.__struct_fields__
    return [
        ProgressSeen(**{**{name: number for name, number in part.items() if name in names}, "start": start})
        for part in data["partitions"]
        if part["topic"] == topic and part["status"] != UNRESPONSIVE
    ]


def is_refusal(status: int) -> bool:
    """Return whether the status means a refusal before any write."""
    return 400 <= status < 500 and status not in (408, 429)


def milliseconds(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def _answered(result: dict[str, Any]) -> Line:
    if result.get("ok"):
        expires = milliseconds(result["expires_at"]) if "expires_at" in result else None
        return Line(kind="ok", expires_ms=expires, dead=tuple(result.get("dead", ())))
    error = result["error"]
    # A forgotten outcome may belong to an accepted ack.
    refused = is_refusal(error["status"]) and error.get("code") != "outcome_forgotten"
    return Line(kind="fail" if refused else "info", reason=json.dumps(error)[:300])
