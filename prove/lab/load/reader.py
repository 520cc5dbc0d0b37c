"""A reader without a group: follows the tail of every partition, or rereads old ranges at random."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import msgspec

from prove.history.recorder import HistoryRecorder
from prove.lab.load.calls import HttpCaller
from prove.lab.load.fetcher import RecordingFetcher
from prove.lab.load.plan import LoadClient, ReaderPlan
from prove.lab.shared_progress import ProgressField

LOOK_EVERY = 2.0


class LoadReader:
    """Reads all partitions in turn, and checks for new partitions at intervals."""

    def __init__(self, plan: ReaderPlan) -> None:
        self._plan = plan
        self._client = LoadClient(plan)
        self._recorder = HistoryRecorder(Path(plan.folder) / "history", plan.name)
        self._caller = HttpCaller(plan.ports, plan.timeout, self._recorder, first=plan.slot)
        reader = "replay" if plan.replay else "fetch"
        self._fetcher = RecordingFetcher(self._recorder, self._caller, plan.topic, reader=reader)  # type: ignore[arg-type]
        self._next: dict[int, int] = {}
        self._before: dict[int, int] = {}
        """The offset at which the last response began."""
        self._ends: dict[int, int] = {}
        self._looked = 0.0

    def run(self) -> None:
        while not self._client.stopped:
            self._look()
            if self._plan.replay:
                self._replay()
            else:
                self._follow()
        self._caller.close()
        self._recorder.close()

    def _follow(self) -> None:
        idle = True
        for partition in list(self._next):
            if self._client.stopped:
                return
            got = self._fetcher.fetch(partition, self._next[partition], limit=2000)
            if got is None:
                self._client.count(ProgressField.UNKNOWN)
                # Like a reader that restarts where it last saved its position: it sees that end and what follows.
                self._next[partition] = self._before.get(partition, self._next[partition])
                continue
            if got["next_offset"] > self._next[partition]:
                idle = False
                self._before[partition] = self._next[partition]
            self._next[partition] = got["next_offset"]
        if idle:
            self._client.rest(0.1)

    def _replay(self) -> None:
        dice = self._client.dice
        known = [partition for partition, end in self._ends.items() if end > 0]
        if known:
            partition = dice.choice(known)
            offset = dice.randrange(self._ends[partition])
            self._fetcher.fetch(partition, offset, limit=dice.choice((1, 50, 500)))
        self._client.rest(0.5)

    def _look(self) -> None:
        if time.monotonic() < self._looked + LOOK_EVERY:
            return
        reply = self._caller.call("GET", f"/v1/topics/{self._plan.topic}")
        if reply.outcome == "ok":
            self._looked = time.monotonic()
            for part in reply.data["partition_list"]:
                self._next.setdefault(part["partition"], part["log_start"])
                self._ends[part["partition"]] = part["high_watermark"]


def main(plan: bytes) -> None:
    LoadReader(msgspec.json.decode(plan, type=ReaderPlan)).run()


if __name__ == "__main__":
    main(sys.argv[1].encode())
