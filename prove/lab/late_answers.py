"""Records late answers and their responses in a separate history, because their senders are dead."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from prove.history.lease_lines import OwnerAnswer, answer_line, is_refusal, outcome_lines
from prove.history.recorder import HistoryRecorder
from prove.lab.server_link import HeldRequest

if TYPE_CHECKING:
    from prove.lab.topology import Topology

_numbers = itertools.count()


class LateAnswers:
    """Delivers held answers, and records them as calls of the delivering process."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology

    def deliver(self, held: HeldRequest, port: int) -> None:
        name = f"late-x{next(_numbers)}"
        _, _, _, topic, _, group, _ = held.path.split("/")
        body = held.body
        sayings = [
            OwnerAnswer(
                verb=each["verb"],
                partition=each["partition"],
                token=each["token"],
                offsets=tuple(each.get("offsets", ())),
                delay_ms=each.get("delay_ms"),
            )
            for each in body["answers"]
        ]
        with HistoryRecorder(self._topology.folder / "history", name) as recorder:
            self._topology.recorded.append(name)
            first = recorder.invoke(*(answer_line(topic, group, body["owner"], saying) for saying in sayings))
            status, data = held.deliver(port)
            outcome = "ok" if 200 <= status < 300 else "fail" if is_refusal(status) else "info"
            recorder.complete(first, *outcome_lines(outcome, data, str(status), len(sayings)))  # type: ignore[arg-type]
