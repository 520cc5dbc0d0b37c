"""The owner of leases in the laboratory: what it records about a consume."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from prove.history.lines import ProgressSeen
from prove.history.recorder import HistoryRecorder
from prove.lab.load.calls import CallReply, HttpCaller
from prove.lab.load.owner import LeaseOwner


class FixedReply:
    """A caller whose calls all have the same result."""

    def __init__(self, reply: CallReply) -> None:
        self._reply = reply

    def settle(self) -> None:
        pass

    def call(self, *_: object, **__: object) -> CallReply:
        return self._reply


@pytest.mark.parametrize(
    ("data", "found", "kind"),
    [
        ({"leases": []}, [], "ok"),
        ({"leases": [], "error": {"code": "unavailable"}}, None, "info"),
    ],
)
def test_S12_a_consume_that_reports_an_error_is_recorded_as_unknown(
    tmp_path: Path, data: dict[str, Any], found: list[object] | None, kind: str
) -> None:
    """Messages may have been leased and released, which counts as a delivery."""
    caller = cast(HttpCaller, FixedReply(CallReply(outcome="ok", data=data)))
    with HistoryRecorder(tmp_path, "w-1") as recorder:
        owner = LeaseOwner(recorder, caller, "orders", "billing", "w-1")
        assert owner.consume(2, 30_000, wait_ms=0, request_id="r") == found
    lines = [msgspec.json.decode(line) for line in (tmp_path / "w-1.jsonl").read_bytes().splitlines()]
    assert [line["kind"] for line in lines] == ["invoke", kind, "end"]


def test_S16_a_partition_whose_cell_does_not_respond_has_no_recorded_progress(tmp_path: Path) -> None:
    """Its figures are 0 because they are not known: recorded, they would be a committed offset that fell."""
    figures = dict.fromkeys(set(ProgressSeen.__struct_fields__) - {"partition", "start"}, 0)
    parts = [
        {"topic": "orders", "status": "unresponsive", "partition": 0, **figures},
        {"topic": "orders", "status": "working", "partition": 1, **figures},
        {"topic": "others", "status": "working", "partition": 2, **figures},
    ]
    caller = cast(HttpCaller, FixedReply(CallReply(outcome="ok", data={"partitions": parts})))
    with HistoryRecorder(tmp_path, "w-1") as recorder:
        seen = LeaseOwner(recorder, caller, "orders", "billing", "w-1").progress()
    assert [each.partition for each in seen] == [1]
