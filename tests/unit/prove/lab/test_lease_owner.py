"""The owner of leases in the laboratory: what it records about a consume."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

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
