"""Messages, payloads and streams that the tests of this room share."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from lakelog.batches import from_messages
from lakelog.model.message import Message

NOW = datetime(2026, 2, 3, 4, 5, 6, 789, tzinfo=UTC)


def messages(count: int) -> list[Message]:
    """Messages that use every public column, with nulls, empty values and bytes that are no text among them."""
    return [
        Message(
            key=None if n % 5 == 0 else b"key-%d" % (n % 7),
            value=(None, b"", b"\xff\x00\xfe", b'{"total": %d}' % n)[n % 4],
            headers=None if n % 3 == 0 else {f"name-{m}": "tëxt" * m for m in range(n % 4 + 1)},
            content_type="application/json" if n % 2 else None,
            correlation_id=f"correlation-{n}",
            created_at=NOW + timedelta(seconds=n),
            expires_at=NOW + timedelta(days=n) if n % 4 else None,
            idempotency_key=f"order-{n}" if n % 2 else None,
        )
        for n in range(count)
    ]


def stream(
    batches: Sequence[pa.RecordBatch],
    *,
    compression: str | None = None,
    version: pa.ipc.MetadataVersion = pa.ipc.MetadataVersion.V5,
) -> bytes:
    """An Arrow IPC stream as any Arrow library writes it."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression, metadata_version=version)
    with pa.ipc.new_stream(sink, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def table(**columns: pa.Array) -> pa.RecordBatch:
    """A batch of whatever columns, as a caller may send it."""
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def caller_batch(count: int) -> pa.RecordBatch:
    """A batch in the large types that some libraries write by default, with a partition column."""
    batch = from_messages(messages(count))
    large = {pa.binary(): pa.large_binary(), pa.string(): pa.large_string()}
    arrays = [column.cast(large.get(column.type, column.type)) for column in batch.columns]
    partitions = pa.array([n % 4 if n % 3 else None for n in range(count)], pa.int32())
    return pa.RecordBatch.from_arrays([*arrays, partitions], names=[*batch.schema.names, "partition"])
