"""A tenant of another project on the same servers.

It has a topic and a group of the same names, and looks for data of the main project.

A text of the main project in any response violates S24.
"""

from __future__ import annotations

import http.client
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from prove.history.recorder import HistoryRecorder
from prove.lab.load.calls import HttpCaller
from prove.lab.load.plan import LoadClient, OtherTenantPlan

MINE = "tenant"
"""The prefix of all messages of the other tenant."""
KEPT_MS = 4000
"""The retention of the tenant's messages. They are not tiered, so they would otherwise keep all hot tables."""


class OtherTenant:
    """Publishes a few messages, and requests everything that has a name."""

    def __init__(self, plan: OtherTenantPlan) -> None:
        self._plan = plan
        self._client = LoadClient(plan)
        self._recorder = HistoryRecorder(Path(plan.folder) / "history", plan.name)
        self._caller = HttpCaller(plan.ports, plan.timeout, token=plan.token)
        self._count = self._first = 0

    def run(self) -> None:
        while not self._client.stopped:
            self._publish()
            self._look()
            found = [self._asks("GET", path) for path in self._paths()]
            found += [self._asks("POST", "/v1/consume", self._consume()), self._metrics()]
            for told in found:
                if told is not None:
                    self._recorder.sample("canary", int(told))
            self._client.rest(self._plan.every)
        self._caller.close()
        self._recorder.close()

    def _publish(self) -> None:
        topic = {"name": self._plan.topic, "partitions": 1, "retention": {"max_age_ms": KEPT_MS}}
        self._caller.call("POST", "/v1/topics", topic)
        self._count += 1
        message = {"value": f"{MINE} {self._plan.name}-{self._count}"}
        self._caller.call("POST", f"/v1/topics/{self._plan.topic}/messages", message)

    def _look(self) -> None:
        """Find the start of the tenant's log."""
        reply = self._caller.call("GET", f"/v1/topics/{self._plan.topic}")
        if reply.outcome == "ok":
            self._first = reply.data["partition_list"][0]["log_start"]

    def _paths(self) -> list[str]:
        plan = self._plan
        group, topic = self._client.dice.choice(plan.others)
        return [
            "/v1/topics",
            f"/v1/topics/{plan.topic}",
            f"/v1/topics/{plan.topic}/stats",
            f"/v1/topics/{plan.topic}/partitions/0/messages?offset={self._first}&limit=1000",
            f"/v1/topics/{plan.topic}/partitions/1/messages?offset=0&limit=1000",
            f"/v1/topics/{topic}/partitions/0/messages?offset=0&limit=10",
            "/v1/groups",
            f"/v1/groups/{plan.group}/lag",
            f"/v1/groups/{group}",
            f"/v1/groups/{group}/dead-letters?topic={topic}",
        ]

    def _consume(self) -> dict[str, object]:
        plan = self._plan
        return {"topic": plan.topic, "group": plan.group, "owner": plan.name, "max_messages": 10, "lease_ms": 1000}

    def _asks(self, method: str, path: str, body: object = None) -> bool | None:
        """Return whether the response mentions the main project; None if there was no response."""
        self._caller.settle()
        reply = self._caller.call(method, path, body)
        if reply.outcome == "info":
            return None
        text = msgspec.json.encode(reply.data).decode()
        return is_foreign(text, path, self._plan.words) or has_other_messages(reply.data)

    def _metrics(self) -> bool | None:
        connection = http.client.HTTPConnection("127.0.0.1", self._plan.ports[0], timeout=self._plan.timeout)
        try:
            connection.request("GET", "/metrics")
            return is_foreign(connection.getresponse().read().decode(), "/metrics", self._plan.words)
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()


def is_foreign(text: str, path: str, words: Sequence[str]) -> bool:
    """Return whether the text contains one of the words, apart from names in the request."""
    return any(word in text for word in words if word not in path)


def has_other_messages(data: object) -> bool:
    """Return whether there are messages that this tenant did not publish."""
    messages = data.get("messages") if isinstance(data, dict) else None
    # Statistics have a number here.
    return isinstance(messages, list) and any(not str(message["value"]).startswith(MINE) for message in messages)


def main(plan: bytes) -> None:
    OtherTenant(msgspec.json.decode(plan, type=OtherTenantPlan)).run()


if __name__ == "__main__":
    main(sys.argv[1].encode())
