"""An owner that records its consumes and answers. It makes no decisions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prove.history.lease_lines import (
    OwnerAnswer,
    SeenLease,
    answer_line,
    lease_of,
    outcome_lines,
    outcome_of_line,
    progress_of,
    seen_of,
)
from prove.history.lines import Line, Op, ProgressSeen, Told
from prove.history.recorder import HistoryRecorder
from prove.lab.load.calls import HttpCaller


class LeaseOwner:
    """A lease owner. `settings` are the group settings of its consumes."""

    def __init__(self, recorder: HistoryRecorder, caller: HttpCaller, topic: str, group: str, name: str) -> None:
        self.recorder, self.caller = recorder, caller
        self.topic, self.group, self.name = topic, group, name
        self.topic_told, self.name_told = topic, name
        """The topic and the owner's name in the history."""
        self.settings: dict[str, Any] = {}

    def consume(
        self, max_messages: int, lease_ms: int, *, wait_ms: int, request_id: str, repeat: bool = False
    ) -> list[SeenLease] | None:
        """Return the leases; None if the outcome of the call is unknown.

        `repeat` means that the same request was sent before.
        """
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
        path = "/v1/consume?repeat=true" if repeat else "/v1/consume"
        reply = self.caller.call("POST", path, body, more=wait_ms / 1000)
        if reply.outcome == "ok" and (error := reply.data.get("error")) is not None:
            # Messages may have been leased and released.
            self.recorder.complete(first, Line(kind="info", reason=error["code"]))
            return None
        if reply.outcome == "ok":
            leases = [lease_of(each) for each in reply.data["leases"]]
            self.recorder.complete(first, Line(kind="ok", leases=tuple([seen_of(each) for each in leases])))
            return leases
        self.recorder.complete(first, Line(kind=reply.outcome, reason=reply.reason))
        if reply.outcome == "fail":
            raise RuntimeError(f"a consume was refused: {reply.reason}")
        return None

    def say(self, sayings: Sequence[OwnerAnswer], *, owner: str | None = None, told: str | None = None) -> list[Told]:
        """Send many answers in one call and return their outcomes.

        `owner` replaces the owner, and `told` the name in the history.
        """
        self.caller.settle()
        told = told or owner or self.name_told
        first = self.recorder.invoke(*(answer_line(self.topic_told, self.group, told, each) for each in sayings))
        body: dict[str, Any] = {"owner": owner or self.name, "answers": [each.body() for each in sayings]}
        reply = self.caller.call("POST", f"/v1/topics/{self.topic}/groups/{self.group}/answers", body)
        lines = outcome_lines(reply.outcome, reply.data, reply.reason, len(sayings))
        self.recorder.complete(first, *lines)
        return [outcome_of_line(line) for line in lines]

    def progress(self, *, final: bool = False, start: int = 0) -> list[ProgressSeen]:
        """Return the progress of the group; empty if no server responded."""
        self.caller.settle()
        first = self.recorder.invoke(self._line("progress", final=final))
        reply = self.caller.call("GET", f"/v1/groups/{self.group}/lag")
        seen = progress_of(reply.data, self.topic, start) if reply.outcome == "ok" else []
        self.recorder.complete(first, Line(kind=reply.outcome, progress=tuple(seen), reason=reply.reason))
        return seen

    def _line(self, op: Op, **more: Any) -> Line:
        return Line(kind="invoke", op=op, topic=self.topic_told, group=self.group, owner=self.name_told, **more)
