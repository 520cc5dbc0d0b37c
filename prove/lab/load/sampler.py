"""Samples the progress of groups repeatedly, and records it."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from prove.history.recorder import HistoryRecorder
from prove.lab.load.calls import HttpCaller
from prove.lab.load.owner import LeaseOwner
from prove.lab.load.plan import LoadClient, SamplerPlan


def main(plan: bytes) -> None:
    asked = msgspec.json.decode(plan, type=SamplerPlan)
    client = LoadClient(asked)
    recorder = HistoryRecorder(Path(asked.folder) / "history", asked.name)
    caller = HttpCaller(asked.ports, asked.timeout, recorder)
    owners = [LeaseOwner(recorder, caller, topic, group, asked.name) for topic, group in asked.groups]
    while not client.stopped:
        for owner in owners:
            owner.progress()
        client.rest(asked.every)
    caller.close()
    recorder.close()


if __name__ == "__main__":
    main(sys.argv[1].encode())
