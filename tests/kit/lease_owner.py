"""An owner that speaks plain HTTP and writes its history: consume, and what it says about what it holds.

It takes no decisions and repeats nothing by itself; a call of unknown outcome is told as such, and the next one goes to
the next server.
"""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from prove.history.lines import Got, LeaseSeen, Line, Op, ProgressSeen, Said, Told
from prove.history.recorder import Recorder

JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True, kw_only=True)
class Message:
    """One leased message."""

    offset: int
    key: str | None
    value: str
    delivery: int
    failures: int


@dataclass(frozen=True, kw_only=True)
class Lease:
    """Messages of one partition in hand."""

    partition: int
    token: int
    expires_ms: int
    suspect: bool
    messages: Sequence[Message]


@dataclass(frozen=True, kw_only=True)
class DeadSeen:
    """One dead letter."""

    partition: int
    offset: int
    key: str | None
    failures: int
    deliveries: int


@dataclass(frozen=True, kw_only=True)
class Saying:
    """One answer to give."""

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


class Unknown(Exception):
    """The call may have happened or not."""


class HttpOwner:
    """`settings` are what its consumes say of the group; `ports` the servers, of which one is used until it fails."""

    def __init__(
        self,
        recorder: Recorder,
        ports: Sequence[int],
        topic: str,
        group: str,
        *,
        owner: str | None = None,
        settings: dict[str, Any] | None = None,
    ) -> None:
        self.recorder = recorder
        self.owner = owner or recorder.process
        self.topic, self.group = topic, group
        self.settings = settings or {}
        self.timeout = 30.0
        self._ports = list(ports)
        self._connection: http.client.HTTPConnection | None = None

    def consume(
        self, max_messages: int, lease_ms: int, *, wait_ms: int = 0, request_id: str | None = None, **more: Any
    ) -> list[Lease]:
        """Leases; `Unknown` when nobody said whether there are any."""
        first = self.recorder.invoke(self._line("consume", lease_ms=lease_ms))
        body = {
            "topic": self.topic,
            "group": self.group,
            "owner": self.owner,
            "max_messages": max_messages,
            "lease_ms": lease_ms,
            "wait_ms": wait_ms,
            **({"request_id": request_id} if request_id else {}),
            **self.settings,
            **more,
        }
        outcome, data, reason = self.call("POST", "/v1/consume", body)
        if outcome != "ok":
            self.recorder.complete(first, Line(kind=outcome, reason=reason))
            if outcome == "fail":
                raise AssertionError(f"a consume was refused: {reason}")
            raise Unknown(reason)
        leases = [_lease(each) for each in data["leases"]]
        self.recorder.complete(first, Line(kind="ok", leases=tuple(map(_seen, leases))))
        return leases

    def say(self, *sayings: Saying, generation: int | None = None) -> list[Told]:
        """Many answers in one call; what became of each."""
        first = self.recorder.invoke(*map(self._said, sayings))
        body: dict[str, Any] = {"owner": self.owner, "answers": [each.body() for each in sayings]}
        if generation is not None:
            body["generation"] = generation
        outcome, data, reason = self.call("POST", f"/v1/topics/{self.topic}/groups/{self.group}/answers", body)
        if outcome != "ok":
            lines = [Line(kind=outcome, reason=reason)] * len(sayings)
        else:
            lines = [_answered(each) for each in data["results"]]
        self.recorder.complete(first, *lines)
        return [_outcome(line) for line in lines]

    def say_one(self, saying: Saying) -> Told:
        """One answer by its own route."""
        first = self.recorder.invoke(self._said(saying))
        body = {**saying.body(), "topic": self.topic, "group": self.group, "owner": self.owner}
        verb = body.pop("verb")
        if verb in ("release", "fail"):
            verb, body["kind"] = "nack", {"release": "uncounted", "fail": "fatal"}[verb]
        outcome, data, reason = self.call("POST", f"/v1/{verb}", body)
        expires = _milliseconds(data["expires_at"]) if outcome == "ok" and data else None
        self.recorder.complete(first, Line(kind=outcome, expires_ms=expires, reason=reason))
        return outcome

    def seek(self, **to: Any) -> None:
        """Moves the group; the seek is an operation of this history."""
        first = self.recorder.invoke(self._line("seek"))
        outcome, _, reason = self.call("POST", f"/v1/groups/{self.group}/seek", {"topic": self.topic, **to})
        self.recorder.complete(first, Line(kind=outcome, reason=reason))
        assert outcome == "ok", reason

    def progress(self, *, start: int = 0, final: bool = False) -> list[ProgressSeen]:
        """How far the group is; nothing if nobody said. `final` is the last word, after the drain."""
        first = self.recorder.invoke(self._line("progress", final=final))
        outcome, data, reason = self.call("GET", f"/v1/groups/{self.group}/lag")
        names = ProgressSeen.__struct_fields__
        seen: list[ProgressSeen] = []
        if outcome == "ok":
            # Asked without the topic: else a group that has not begun would be shown where it would begin by default.
            for part in (each for each in data["partitions"] if each["topic"] == self.topic):
                told = {name: number for name, number in part.items() if name in names}
                seen.append(ProgressSeen(**{**told, "start": start}))
        self.recorder.complete(first, Line(kind=outcome, progress=tuple(seen), reason=reason))
        return seen

    def dead_letters(self) -> list[DeadSeen]:
        """All of them."""
        found: list[DeadSeen] = []
        after = ""
        while True:
            path = f"/v1/groups/{self.group}/dead-letters?topic={self.topic}&limit=1000{after}"
            outcome, data, reason = self.call("GET", path)
            assert outcome == "ok", reason
            for each in data["dead_letters"]:
                _, partition, offset = each["id"].split("-")
                assert int(partition) == each["partition"], each
                found.append(
                    DeadSeen(
                        partition=each["partition"],
                        offset=int(offset),
                        key=each.get("key"),
                        failures=each["failures"],
                        deliveries=each["deliveries"],
                    )
                )
            if data.get("next") is None:
                return found
            after = f"&after={data['next']}"

    def close(self) -> None:
        self._drop()
        self.recorder.close()

    # Calls ------------------------------------------------------------------------------------------------------------

    def call(self, method: str, path: str, body: Any = None) -> tuple[Told, Any, str]:
        """What became of it, the decoded answer, and why not."""
        try:
            if self._connection is None:
                self._connection = http.client.HTTPConnection("127.0.0.1", self._ports[0], timeout=self.timeout)
            self._connection.request(method, path, None if body is None else json.dumps(body), JSON)
            answer = self._connection.getresponse()
            data = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self._drop()
            return "info", None, repr(error)
        decoded = json.loads(data) if data else None
        if answer.status < 300:
            return "ok", decoded, ""
        reason = f"{answer.status} {data[:300].decode(errors='replace')}"
        if answer.status >= 500 or answer.status == 429:
            self._drop()
            return "info", None, reason
        return "fail", decoded, reason

    def _drop(self) -> None:
        """The next call goes to the next server."""
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.close()
            self._connection = None
        self._ports.append(self._ports.pop(0))

    def _line(self, op: Op, **more: Any) -> Line:
        return Line(kind="invoke", op=op, topic=self.topic, group=self.group, owner=self.owner, **more)

    def _said(self, saying: Saying) -> Line:
        return self._line(
            saying.verb,
            partition=saying.partition,
            token=saying.token,
            # An extend speaks for the whole lease, whatever it names.
            offsets=() if saying.verb == "extend" else saying.offsets,
            delay_ms=saying.delay_ms,
        )


def _lease(told: dict[str, Any]) -> Lease:
    messages = [
        Message(
            offset=each["offset"],
            key=each.get("key"),
            value=each["value"],
            delivery=each["delivery"],
            failures=each["failures"],
        )
        for each in told["messages"]
    ]
    return Lease(
        partition=told["partition"],
        token=told["token"],
        expires_ms=_milliseconds(told["expires_at"]),
        suspect=told["suspect"],
        messages=messages,
    )


def _seen(lease: Lease) -> LeaseSeen:
    got = tuple(Got(each.offset, each.delivery, each.failures) for each in lease.messages)
    return LeaseSeen(lease.partition, lease.token, lease.expires_ms, lease.suspect, got)


def _answered(result: dict[str, Any]) -> Line:
    if result.get("ok"):
        expires = _milliseconds(result["expires_at"]) if "expires_at" in result else None
        return Line(kind="ok", expires_ms=expires, dead=tuple(result.get("dead", ())))
    error = result["error"]
    refused = 400 <= error["status"] < 500 and error["status"] != 429
    return Line(kind="fail" if refused else "info", reason=json.dumps(error)[:300])


def _outcome(line: Line) -> Told:
    return "ok" if line.kind == "ok" else "fail" if line.kind == "fail" else "info"


def _milliseconds(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)
