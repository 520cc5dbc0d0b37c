"""Deletes a topic with leased messages, creates it again, and answers for leases of the deleted topic (S9).

The history has each incarnation as a separate topic with a separate owner, so an accepted answer for the old topic
shows as an answer to another owner's lease.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from prove.history.lease_lines import OwnerAnswer, SeenLease
from prove.history.recorder import Attempt, HistoryRecorder
from prove.lab.load.calls import CallReply, HttpCaller
from prove.lab.load.owner import LeaseOwner
from prove.lab.load.plan import LoadClient, TopicRecreatorPlan

LATE_SECONDS = 10.0
"""The longest delay of a call without a response. It must not affect the next topic."""


class TopicGone(Exception):
    """The error that the topic is gone, so that the process starts again."""


@dataclass(frozen=True, kw_only=True)
class _Held:
    """The answers that an owner has not sent yet. The owner has its name in the history."""

    owner: str
    sayings: Sequence[OwnerAnswer]


class TopicRecreator:
    """Creates one topic after another under the same name."""

    def __init__(self, plan: TopicRecreatorPlan) -> None:
        self._plan = plan
        self._client = LoadClient(plan)
        recorder = HistoryRecorder(Path(plan.folder) / "history", plan.name)
        self._caller = HttpCaller(plan.ports, plan.timeout, recorder, first=plan.slot)
        self._owner = LeaseOwner(recorder, self._caller, plan.topic, plan.group, plan.name)
        self._owner.settings = {"start_from": "earliest"}
        self._path = f"/v1/topics/{plan.topic}"
        self._round = 0

    def run(self) -> None:
        old = _Held(owner="", sayings=[])
        while not self._client.stopped:
            self._round += 1
            try:
                old = self._use_topic(old)
            except TopicGone:
                continue
            self._client.rest(self._plan.every * 2 * self._client.dice.random())
        self._delete()
        self._caller.close()
        self._owner.recorder.close()

    def _use_topic(self, old: _Held) -> _Held:
        """Create and use one topic. Return the answers that are still open for it."""
        self._delete()
        self._create()
        leases = self._leased()
        if old.sayings and leases:
            self._owner.say(old.sayings, told=old.owner)
        done, kept = _halves(leases)
        if done:
            self._owner.say(done)
        return _Held(owner=self._owner.name_told, sayings=kept)

    def _create(self) -> None:
        reply = self._ask("POST", "/v1/topics", {"name": self._plan.topic, "partitions": 1})
        incarnation = reply.data["incarnation"]
        self._owner.topic_told = f"{self._plan.topic}.{incarnation}"
        self._owner.name_told = f"{self._plan.name}.{incarnation}"
        self._publish(
            [(f"k{number}", f"{self._plan.name}-{self._round}-{number}") for number in range(self._plan.count)]
        )

    def _publish(self, made: Sequence[tuple[str, str]]) -> None:
        """Publish messages. They are recorded with an unknown outcome, because they will be deleted."""
        attempts = [Attempt(topic=self._owner.topic_told, key=key, value=value.encode()) for key, value in made]
        with self._owner.recorder.publish(*attempts) as call:
            call.info("the topic is deleted soon")
            messages = [{"key": key, "value": value} for key, value in made]
            self._ask("POST", f"{self._path}/messages", {"messages": messages})

    def _delete(self) -> None:
        try:
            self._ask("DELETE", self._path)
        except TopicGone:
            return

    def _ask(self, method: str, path: str, body: object = None) -> CallReply:
        """Repeat the call until there is a response, or until the process has to end."""
        while True:
            self._caller.settle()
            reply = self._caller.call(method, path, body)
            if reply.outcome == "ok":
                return reply
            if reply.outcome == "fail":
                raise TopicGone(reply.reason)
            self._client.rest(LATE_SECONDS)
            if self._client.stopped:
                raise TopicGone("No server responded.")

    def _leased(self) -> list[SeenLease]:
        plan, request_id = self._plan, f"{self._plan.name}-{self._round}"
        while not self._client.stopped:
            try:
                leases = self._owner.consume(plan.count, plan.lease_ms, wait_ms=500, request_id=request_id)
            except RuntimeError as error:
                raise TopicGone from error
            if leases is not None:
                return leases
        return []


def _halves(leases: Sequence[SeenLease]) -> tuple[list[OwnerAnswer], list[OwnerAnswer]]:
    """Return the answers to send now, and those to send after the topic was recreated."""
    done: list[OwnerAnswer] = []
    kept: list[OwnerAnswer] = []
    for lease in leases:
        offsets = tuple(message.offset for message in lease.messages)
        half = len(offsets) // 2
        for chosen, said in ((offsets[half:], done), (offsets[:half], kept)):
            if chosen:
                said.append(OwnerAnswer(verb="ack", partition=lease.partition, token=lease.token, offsets=chosen))
    return done, kept


def main(plan: bytes) -> None:
    TopicRecreator(msgspec.json.decode(plan, type=TopicRecreatorPlan)).run()


if __name__ == "__main__":
    main(sys.argv[1].encode())
