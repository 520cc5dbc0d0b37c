"""Large values of JSON responses: the same bytes as from the encoder, in steps that let other threads run."""

from __future__ import annotations

import threading
import time
from typing import Any

import msgspec
import pytest

from lakelog.server import large_values
from lakelog.server.large_values import LargeValues
from lakelog.server.messages import COLUMNS, shown_as
from lakelog.wire.shapes import FetchedShape
from tests.unit.server.harness import working

LARGE = large_values.LARGE_BYTES


@pytest.mark.parametrize(
    "value",
    [
        b"\xff" * (5 * LARGE + 1),
        '\0é"\\\u2028😀x' * LARGE,
        "short",
        b"short",
        None,
        msgspec.Raw(b"[1,2]"),
        msgspec.Raw(b'{"a":"' + b"x" * LARGE + b'"}'),
    ],
    ids=["bytes", "text", "short text", "short bytes", "none", "short json", "json"],
)
def test_the_response_is_that_of_the_encoder(value: Any) -> None:
    large = LargeValues()
    body = {"messages": [{"value": value, "n": 1}, {"value": value}]}
    marked = {"messages": [{"value": large.shown(value), "n": 1}, {"value": large.shown(value)}]}
    assert large.join(msgspec.json.encode(marked)) == msgspec.json.encode(body)


def test_other_threads_run_while_a_large_response_is_encoded() -> None:
    row = dict.fromkeys(COLUMNS)
    row["value"] = bytes(1 << 20)
    columns = tuple(row.values())
    body = {"messages": [{"value_base64": row["value"]}] * 48}
    alone, gaps = [], []
    for _ in range(5):
        with _Gaps() as found:
            msgspec.json.encode(body)
        alone.append(found.longest)
        large = LargeValues()
        with _Gaps() as found:
            shapes = [shown_as(FetchedShape, columns, "1-0-0", 0, large, appended_at=None) for _ in range(48)]
            large.join(msgspec.json.encode(shapes))
        gaps.append(found.longest)
    # The encoder alone stops the other threads until it has encoded everything.
    assert min(gaps) < min(alone) / 2


class _Gaps:
    """Measures the longest time in which another thread could not run."""

    longest = 0.0

    def __enter__(self) -> _Gaps:
        self._stopped, self._begun = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._measure)
        self._thread.start()
        self._begun.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _measure(self) -> None:
        last = time.perf_counter()
        self._begun.set()
        while not self._stopped.wait(0.001):
            now = time.perf_counter()
            self.longest, last = max(self.longest, now - last), now


async def test_large_messages_are_consumed_and_fetched_unchanged() -> None:
    async with working() as made:
        text = 'é"' * LARGE
        message = {"value": text, "content_type": "text/plain"}
        reply = await made.call("POST", "/v1/topics/jobs/messages", json={"messages": [message, {"value": [text]}]})
        assert reply.status == 200
        who = {"topic": "jobs", "group": "g", "owner": "o", "start_from": "earliest", "max_messages": 10}
        leases = (await made.call("POST", "/v1/consume", json=who)).json["leases"]
        assert sorted(str(each["value"]) for lease in leases for each in lease["messages"]) == sorted(
            [text, str([text])]
        )
        values = []
        for partition in range(4):
            path = f"/v1/topics/jobs/partitions/{partition}/messages"
            fetched = await made.call("GET", path, query="offset=0")
            values += [each["value"] for each in fetched.json["messages"]] if fetched.status == 200 else []
        assert sorted(map(str, values)) == sorted([text, str([text])])
