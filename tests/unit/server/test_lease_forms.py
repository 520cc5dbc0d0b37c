"""A lease in its three forms: the same messages in each, in the order in which to run them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from lakelog.batches import columns, decode, encode, from_messages
from lakelog.engine.leasing.cached_batch import CachedBatch
from lakelog.engine.leasing.consuming import ConsumeResult, Leased, LeasedBatch
from lakelog.model.group import Group, GroupKind, GroupSettings
from lakelog.model.message import Message
from lakelog.model.ranges import from_ranges
from lakelog.model.topic import Scope, Topic, TopicSettings
from lakelog.server.lease_forms import LEASES, as_arrow, as_json, as_leases, nothing
from lakelog.storage.store import HotBatch
from lakelog.wire.frames import ARROW_MEDIA_TYPE
from lakelog.wire.leases import MEDIA_TYPE, read_leases

AT = datetime(2026, 1, 31, 12, tzinfo=UTC)
SCOPE = Scope(project="default", environment="default", environment_id=1)
TOPIC = Topic(
    incarnation=5,
    scope=SCOPE,
    name="orders",
    epoch=0,
    cells=(0, 0),
    slot_cells=(0,),
    settings=TopicSettings(),
    created_at=AT,
)
GROUP = Group(
    group_id=1,
    scope=SCOPE,
    name="billing",
    kind=GroupKind.LEASE,
    settings=GroupSettings(),
    version=1,
    cell=0,
    paused=frozenset(),
    created_at=AT,
)


def _batch(base: int, count: int) -> HotBatch:
    messages = [
        Message(
            value=b'{"n": %d}' % (base + n),
            key=b"k%d" % n if n % 2 else None,
            headers={"h": str(n)} if n % 3 else None,
            content_type="application/json",
        )
        for n in range(count)
    ]
    payload = encode(from_messages(messages))
    return HotBatch(base=base, count=count, appended_at=AT, epoch=0, bytes_end=len(payload), payload=payload)


def _piece(base: int, count: int, offsets: list[int]) -> LeasedBatch:
    return LeasedBatch(cached=CachedBatch(_batch(base, count), 1), offsets=offsets)


def _consumed(order: list[int] | None = None) -> ConsumeResult:
    offsets = [3, 4, 5, 40]
    leased = Leased(
        token=4711,
        partition=1,
        expires_ms=1_800_000_000_000,
        suspect=True,
        offsets=order or offsets,
        deliveries={4: 3},
        failures={4: 2},
        pieces=[_piece(0, 10, [3, 4, 5]), _piece(10, 100, [40])],
    )
    return ConsumeResult(topic=TOPIC, group=GROUP, leases=[leased], generation=9)


ORDERS = [[3, 4, 5, 40], [40, 4, 3, 5]]


@pytest.mark.parametrize("order", ORDERS)
def test_as_json(order: list[int]) -> None:
    answer: Any = msgspec.json.decode(as_json(_consumed(order)))
    (lease,) = answer["leases"]
    assert (answer["generation"], lease["token"], lease["partition"], lease["suspect"]) == (9, 4711, 1, True)
    assert lease["expires_at"] == "2027-01-15T08:00:00Z"
    assert [message["offset"] for message in lease["messages"]] == order
    assert [message["value"] for message in lease["messages"]] == [{"n": offset} for offset in order]
    counts = {message["offset"]: (message["delivery"], message["failures"]) for message in lease["messages"]}
    assert counts == {3: (1, 0), 4: (3, 2), 5: (1, 0), 40: (1, 0)}
    assert {message["id"] for message in lease["messages"]} == {f"5-1-{offset}" for offset in order}


@pytest.mark.parametrize("order", ORDERS)
def test_as_arrow(order: list[int]) -> None:
    table = pa.ipc.open_stream(as_arrow(_consumed(order))).read_all()
    table.validate(full=True)
    assert table.schema == LEASES
    assert table["offset"].to_pylist() == order
    assert table["value"].to_pylist() == [b'{"n": %d}' % offset for offset in order]
    assert set(table["token"].to_pylist()) == {4711}
    assert dict(zip(order, table["delivery"].to_pylist(), strict=True)) == {3: 1, 4: 3, 5: 1, 40: 1}
    assert dict(zip(order, table["failures"].to_pylist(), strict=True)) == {3: 0, 4: 2, 5: 0, 40: 0}


@pytest.mark.parametrize("order", ORDERS)
def test_as_stored_payloads(order: list[int]) -> None:
    head, payloads = read_leases(as_leases(_consumed(order)))
    (lease,) = head.leases
    assert (head.incarnation, head.generation, lease.suspect) == (5, 9, True)
    assert list(lease.offsets()) == order
    # 3 of 10 are worth the whole batch, 1 of 100 is not.
    assert [piece.whole for piece in lease.pieces] == [True, False]
    found: dict[int, bytes] = {}
    for piece, payload in zip(lease.pieces, payloads, strict=True):
        offsets = list(from_ranges(piece.offsets))
        values = columns(decode(payload))["value"]
        rows = [offset - piece.base for offset in offsets] if piece.whole else range(len(offsets))
        found |= {offset: values[row] for offset, row in zip(offsets, rows, strict=True)}
        assert len(values) == (piece.count if piece.whole else len(offsets))
    assert found == {offset: b'{"n": %d}' % offset for offset in order}
    assert (lease.deliveries, lease.failures) == ({4: 3}, {4: 2})


def test_nothing_in_every_form() -> None:
    assert msgspec.json.decode(nothing("application/json")) == {"leases": []}
    assert read_leases(nothing(MEDIA_TYPE))[0].leases == []
    assert pa.ipc.open_stream(nothing(ARROW_MEDIA_TYPE)).read_all().num_rows == 0
