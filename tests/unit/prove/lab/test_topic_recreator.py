"""The client that recreates topics answers for leases of the deleted topic (S9)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prove.checker.judgement import CheckVerdict, judge
from prove.history.loading import load_files
from prove.lab.load import topic_recreator
from prove.lab.load.calls import CallReply
from prove.lab.load.plan import TopicRecreatorPlan


class Servers:
    """A topic whose leases start again with each incarnation; with `careful`, tokens do not."""

    def __init__(self, careful: bool) -> None:
        self.careful, self.incarnation, self.there = careful, 0, False

    def call(self, method: str, path: str, body: Any = None, *, more: float = 0.0) -> CallReply:
        if method == "DELETE":
            self.there, was = False, self.there
            return CallReply(outcome="ok") if was else CallReply(outcome="fail", reason="404")
        if path == "/v1/topics":
            self.there, self.incarnation = True, self.incarnation + 1
        if path == "/v1/consume":
            return CallReply(outcome="ok", data={"leases": [self._lease()]})
        if path.endswith("/answers"):
            fits = [each["token"] == self._token for each in body["answers"]]
            told = [
                {"ok": True} if each else {"error": {"code": "lease_lost", "status": 409, "title": "Lost"}}
                for each in fits
            ]
            return CallReply(outcome="ok", data={"results": told})
        return CallReply(outcome="ok", data={"incarnation": self.incarnation})

    @property
    def _token(self) -> int:
        return self.incarnation if self.careful else 1

    def _lease(self) -> dict[str, Any]:
        messages = [{"offset": offset, "key": "k", "value": "v", "delivery": 1, "failures": 0} for offset in range(4)]
        expires = "2096-01-01T00:00:00Z"
        return {"partition": 0, "token": self._token, "expires_at": expires, "suspect": False, "messages": messages}

    def settle(self) -> None:
        """Do not pause."""

    def close(self) -> None:
        """Do nothing: no connection is open."""


@pytest.mark.parametrize(("careful", "verdict"), [(True, CheckVerdict.VALID), (False, CheckVerdict.INVALID)])
def test_S9_an_answer_for_the_topic_before_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, careful: bool, verdict: CheckVerdict
) -> None:
    for folder in ("history", "stop"):
        (tmp_path / folder).mkdir()
    servers = Servers(careful)
    monkeypatch.setattr(topic_recreator, "HttpCaller", lambda *_, **__: servers)
    plan = TopicRecreatorPlan(
        name="r-1",
        role="recreator",
        slot=0,
        folder=str(tmp_path),
        ports=[1],
        seed=1,
        topic="passing",
        group="g",
        every=0,
    )
    client = topic_recreator.TopicRecreator(plan)
    lives = iter([False] * 12)
    monkeypatch.setattr(type(client._client), "stopped", property(lambda _: next(lives, True)))
    client.run()
    assert servers.incarnation > 1 and not servers.there
    judged = judge(load_files(tmp_path / "history"))
    assert judged["S9"].verdict is verdict, judged["S9"]
