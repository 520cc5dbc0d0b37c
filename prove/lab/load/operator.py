"""An operator: redrives dead letters of a group, discards those that died too often, and makes mistakes.

The final state shows the fate of dead letters, and is judged. A mistake must be refused.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from lakelog.model.limits import MAX_MESSAGE_BYTES
from lakelog.wire.problems import error_of
from prove.history.recorder import Attempt, HistoryRecorder
from prove.lab.load.calls import CallReply, HttpCaller
from prove.lab.load.plan import LoadClient, OperatorPlan


class LoadOperator:
    """Makes one call at a time. A lost call is not repeated, because the next round has the same effect."""

    def __init__(self, plan: OperatorPlan) -> None:
        self._plan = plan
        self._client = LoadClient(plan)
        self._recorder = HistoryRecorder(Path(plan.folder) / "history", plan.name)
        self._caller = HttpCaller(plan.ports, plan.timeout, self._recorder, first=plan.slot)
        self._round = 0

    def run(self) -> None:
        while not self._client.stopped:
            self._round += 1
            self._redrive()
            self._publish_too_much()
            self._client.rest(self._plan.every * 2 * self._client.dice.random())
        self._caller.close()
        self._recorder.close()

    def _redrive(self) -> None:
        # Redrive once: messages that kill their workers kill as many again.
        asked = {"topic": self._plan.topic, "limit": self._plan.redrives, "max_redrives": 1}
        reply = self._post("redrive", asked)
        if reply.outcome != "ok":
            return
        refused = [each["id"] for each in reply.data["refusals"]]
        if refused:
            self._post("discard", {"message_ids": refused})

    def _post(self, verb: str, body: dict[str, object]) -> CallReply:
        self._caller.settle()
        reply = self._caller.call("POST", f"/v1/groups/{self._plan.group}/dead-letters/{verb}", body)
        # The group has no dead letters before its first call, and another server may have changed them just now.
        if reply.outcome == "fail" and not reply.reason.startswith(("404", "409")):
            raise RuntimeError(f"a {verb} was refused: {reply.reason}")
        return reply

    def _publish_too_much(self) -> None:
        """Publish a message one byte above the limit."""
        name = f"{self._plan.name}-{self._round}"
        value = name.ljust(MAX_MESSAGE_BYTES + 1, ".")
        self._caller.settle()
        attempt = Attempt(topic=self._plan.topic, value=value.encode(), idempotency_key=name)
        with self._recorder.publish(attempt) as call:
            body = {"messages": [{"value": value, "idempotency_key": name}]}
            reply = self._caller.call("POST", f"/v1/topics/{self._plan.topic}/messages", body)
            if reply.outcome == "info":
                call.info(reply.reason)
                return
            error = reply.data if reply.outcome == "fail" else reply.data["results"][0].get("error")
            if error is None:
                raise RuntimeError(f"a message of {len(value)} bytes was accepted: {reply.data}")
            call.failed(error_of(error))


def main(plan: bytes) -> None:
    LoadOperator(msgspec.json.decode(plan, type=OperatorPlan)).run()


if __name__ == "__main__":
    main(sys.argv[1].encode())
