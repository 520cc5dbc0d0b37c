"""An owner that writes its history: consumes, and what it says about what it holds. It takes no decisions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from prove.history.lines import Got, LeaseSeen, Line, Op, ProgressSeen, Said, Told
from prove.history.recorder import Recorder
from prove.history.tables import text_id
from prove.lab.load.calls import Caller, is_refusal, milliseconds


@dataclass(frozen=True, kw_only=True)
class Message:
    """One leased message."""

    offset: int
    key: str | None
    value: str


@dataclass(frozen=True, kw_only=True)
class Lease:
    """Messages of one partition in hand."""

    partition: int
    token: int
    suspect: bool
    messages: Sequence[Message]


@dataclass(frozen=True, kw_only=True)
class Saying:
    """One answer to give."""

    verb: Said
    partition: int
    token: int
    offsets: tuple[int, ...] = ()
    delay_ms: int | None = None
    lease_ms: int = 6000

    def body(self) -> dict[str, Any]:
        body: dict[str, Any] = {"verb": self.verb, "partition": self.partition, "token": self.token}
        if self.offsets:
            body["offsets"] = list(self.offsets)
        if self.delay_ms is not None:
            body["delay_ms"] = self.delay_ms
        if self.verb == "extend":
            body["lease_ms"] = self.lease_ms
        return body


class Owner:
    """`settings` are what its consumes say of the group."""

    def __init__(self, recorder: Recorder, caller: Caller, topic: str, group: str, name: str) -> None:
        self.recorder, self.caller = recorder, caller
        self.topic, self.group, self.name = topic, group, name
        self.settings: dict[str, Any] = {}

    def consume(self, max_messages: int, lease_ms: int, *, wait_ms: int, request_id: str) -> list[Lease] | None:
        """Leases; None when nobody said whether there are any."""
        self.caller.settle()
        first = self.recorder.invoke(self._line("consume", lease_ms=lease_ms))
        body = {
            "topic": self.topic,
            "group": self.group,
            "owner": self.name,
            "max_messages": max_messages,
            "lease_ms": lease_ms,
            "wait_ms": wait_ms,
            "request_id": request_id,
            **self.settings,
        }
        reply = self.caller.call("POST", "/v1/consume", body, more=wait_ms / 1000)
        if reply.outcome == "ok":
            told = reply.data["leases"]
            self.recorder.complete(first, Line(kind="ok", leases=tuple([_seen(each) for each in told])))
            return [_lease(each) for each in told]
        self.recorder.complete(first, Line(kind=reply.outcome, reason=reply.reason))
        if reply.outcome == "fail":
            raise RuntimeError(f"a consume was refused: {reply.reason}")
        return None

    def say(self, sayings: Sequence[Saying], *, owner: str | None = None) -> list[Told]:
        """Many answers in one call; what became of each."""
        self.caller.settle()
        first = self.recorder.invoke(*(self._said(each, owner or self.name) for each in sayings))
        body: dict[str, Any] = {"owner": owner or self.name, "answers": [each.body() for each in sayings]}
        reply = self.caller.call("POST", f"/v1/topics/{self.topic}/groups/{self.group}/answers", body)
        lines = outcome_lines(reply.outcome, reply.data, reply.reason, len(sayings))
        self.recorder.complete(first, *lines)
        return ["ok" if line.kind == "ok" else "fail" if line.kind == "fail" else "info" for line in lines]

    def progress(self, *, final: bool = False, start: int = 0) -> list[ProgressSeen]:
        """How far the group is; nothing if nobody said."""
        self.caller.settle()
        first = self.recorder.invoke(self._line("progress", final=final))
        reply = self.caller.call("GET", f"/v1/groups/{self.group}/lag")
        seen = progress_of(reply.data, self.topic, start) if reply.outcome == "ok" else []
        self.recorder.complete(first, Line(kind=reply.outcome, progress=tuple(seen), reason=reply.reason))
        return seen

    def _line(self, op: Op, **more: Any) -> Line:
        return Line(kind="invoke", op=op, topic=self.topic, group=self.group, owner=self.name, **more)

    def _said(self, saying: Saying, owner: str) -> Line:
        return said_line(self.topic, self.group, owner, saying)


def said_line(topic: str, group: str, owner: str, saying: Saying) -> Line:
    """The line before an answer is given."""
    return Line(
        kind="invoke",
        op=saying.verb,
        topic=topic,
        group=group,
        owner=owner,
        partition=saying.partition,
        token=saying.token,
        offsets=saying.offsets,
        delay_ms=saying.delay_ms,
    )


def outcome_lines(outcome: Told, data: Any, reason: str, count: int) -> list[Line]:
    """The lines after many answers were given."""
    if outcome != "ok":
        return [Line(kind=outcome, reason=reason)] * count
    return [_answered(each) for each in data["results"]]


def progress_of(data: Any, topic: str, start: int) -> list[ProgressSeen]:
    names = ProgressSeen.__struct_fields__
    return [
        ProgressSeen(**{**{name: number for name, number in part.items() if name in names}, "start": start})
        for part in data["partitions"]
        if part["topic"] == topic
    ]


def _lease(told: dict[str, Any]) -> Lease:
    messages = [Message(offset=each["offset"], key=each.get("key"), value=each["value"]) for each in told["messages"]]
    return Lease(partition=told["partition"], token=told["token"], suspect=told["suspect"], messages=messages)


def _seen(told: dict[str, Any]) -> LeaseSeen:
    got = tuple(
        [
            Got(each["offset"], each["delivery"], each["failures"], text_id(each["value"]), text_id(each.get("key")))
            for each in told["messages"]
        ]
    )
    return LeaseSeen(told["partition"], told["token"], milliseconds(told["expires_at"]), told["suspect"], got)


def _answered(result: dict[str, Any]) -> Line:
    if result.get("ok"):
        expires = milliseconds(result["expires_at"]) if "expires_at" in result else None
        return Line(kind="ok", expires_ms=expires, dead=tuple(result.get("dead", ())))
    error = result["error"]
    return Line(kind="fail" if is_refusal(error["status"]) else "info", reason=json.dumps(error)[:300])
