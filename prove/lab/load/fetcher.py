"""Recorded fetches for all kinds of readers."""

from __future__ import annotations

from typing import Any

from lakelog.wire.problems import error_of
from prove.history.lease_lines import value_of
from prove.history.lines import ReadBy, identity_of
from prove.history.recorder import HistoryRecorder
from prove.history.tables import text_id
from prove.lab.load.calls import HttpCaller


class RecordingFetcher:
    """Reads partitions of one topic, optionally on behalf of a group."""

    def __init__(
        self, recorder: HistoryRecorder, caller: HttpCaller, topic: str, *, reader: ReadBy, group: str = ""
    ) -> None:
        self._recorder, self._caller = recorder, caller
        self._topic, self._reader, self._group = topic, reader, group

    def fetch(self, partition: int, offset: int, *, limit: int = 1000, wait_ms: int = 0) -> dict[str, Any] | None:
        """Return the response; None if there was none. If retention removed the offset, return the new log start."""
        path = f"/v1/topics/{self._topic}/partitions/{partition}/messages?offset={offset}&limit={limit}"
        self._caller.settle()
        with self._recorder.fetch(self._topic, partition, offset, reader=self._reader, group=self._group) as call:
            reply = self._caller.call("GET", f"{path}&wait_ms={wait_ms}", more=wait_ms / 1000)
            if reply.outcome == "info":
                call.info(reply.reason)
                return None
            if reply.outcome == "fail":
                call.failed(error_of(reply.data))
                return None
            messages = reply.data["messages"]
            call.saw(
                [each["offset"] for each in messages],
                [text_id(value_of(each)) for each in messages],
                keys=[text_id(each.get("key")) for each in messages],
                identities=[identity_of(each.get("idempotency_key")) for each in messages],
                bounds=(reply.data["log_start"], reply.data["high_watermark"]),
            )
            data: dict[str, Any] = reply.data
            return data
