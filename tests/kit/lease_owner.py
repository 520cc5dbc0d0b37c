"""A lease owner that uses plain HTTP and writes its history: it consumes, and answers for the messages that it holds.

It makes no decisions and repeats nothing by itself. It reports a call of unknown outcome as such, and sends the next
call to the next server.
"""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from prove.history.lease_lines import (
    OwnerAnswer,
    SeenLease,
    answer_line,
    lease_of,
    milliseconds,
    outcome_lines,
    outcome_of_line,
    progress_of,
    seen_of,
)
from prove.history.lines import Line, Op, ProgressSeen, Told
from prove.history.recorder import HistoryRecorder

JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True, kw_only=True)
class DeadSeen:
    """One dead letter."""

    partition: int
    offset: int
    key: str | None
    failures: int
    deliveries: int


class Unknown(Exception):
    """The call may or may not have taken effect."""


class HttpOwner:
    """`settings` are the group settings in its consumes. It uses one of the servers in `ports` until that one fails."""

    def __init__(
        self,
        recorder: HistoryRecorder,
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
    ) -> list[SeenLease]:
        """Return leases. Raise `Unknown` if it is not known whether any were granted."""
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
        leases = [lease_of(each) for each in data["leases"]]
        self.recorder.complete(first, Line(kind="ok", leases=tuple(map(seen_of, leases))))
        return leases

    def say(self, *sayings: OwnerAnswer, generation: int | None = None) -> list[Told]:
        """Send many answers in one call, and return the outcome of each."""
        first = self.recorder.invoke(*(answer_line(self.topic, self.group, self.owner, each) for each in sayings))
        body: dict[str, Any] = {"owner": self.owner, "answers": [each.body() for each in sayings]}
        if generation is not None:
            body["generation"] = generation
        outcome, data, reason = self.call("POST", f"/v1/topics/{self.topic}/groups/{self.group}/answers", body)
        lines = outcome_lines(outcome, data, reason, len(sayings))
        self.recorder.complete(first, *lines)
        return [outcome_of_line(line) for line in lines]

    def say_one(self, saying: OwnerAnswer) -> Told:
        """Send one answer to its own route."""
        first = self.recorder.invoke(answer_line(self.topic, self.group, self.owner, saying))
        body = {**saying.body(), "topic": self.topic, "group": self.group, "owner": self.owner}
        verb = body.pop("verb")
        if verb in ("release", "fail"):
            verb, body["kind"] = "nack", {"release": "uncounted", "fail": "fatal"}[verb]
        outcome, data, reason = self.call("POST", f"/v1/{verb}", body)
        expires = milliseconds(data["expires_at"]) if outcome == "ok" and data else None
        self.recorder.complete(first, Line(kind=outcome, expires_ms=expires, reason=reason))
        return outcome

    def seek(self, **to: Any) -> None:
        """Seek the group, and record the seek in this history."""
        first = self.recorder.invoke(self._line("seek"))
        outcome, _, reason = self.call("POST", f"/v1/groups/{self.group}/seek", {"topic": self.topic, **to})
        self.recorder.complete(first, Line(kind=outcome, reason=reason))
        assert outcome == "ok", reason

    def progress(self, *, start: int = 0, final: bool = False) -> list[ProgressSeen]:
        """Return the progress of the group, or nothing if the outcome is unknown. `final` marks the last one, after the
        drain.
        """
        first = self.recorder.invoke(self._line("progress", final=final))
        outcome, data, reason = self.call("GET", f"/v1/groups/{self.group}/lag")
        seen = progress_of(data, self.topic, start) if outcome == "ok" else []
        self.recorder.complete(first, Line(kind=outcome, progress=tuple(seen), reason=reason))
        return seen

    def dead_letters(self) -> list[DeadSeen]:
        """Return all dead letters."""
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
        """Return the outcome, the decoded response, and the reason of a failure."""
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
        """Send the next call to the next server."""
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.close()
            self._connection = None
        self._ports.append(self._ports.pop(0))

    def _line(self, op: Op, **more: Any) -> Line:
        return Line(kind="invoke", op=op, topic=self.topic, group=self.group, owner=self.owner, **more)
