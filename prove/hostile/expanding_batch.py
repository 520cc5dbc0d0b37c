"""A stored batch that is as small as the servers accept for its decoded size."""

from __future__ import annotations

import random
import struct

import pyarrow as pa

from lakelog.batches.encoding import PREFIX
from lakelog.batches.schema import BITS
from lakelog.wire.frames import NO_PRODUCER, PublishFrame, write_publish

ROWS = 15
ROW_BYTES = 1 << 20
_PAD_BYTES = 180_000
"""Bytes that cannot be compressed, so that the batch stays below the largest ratio that is accepted."""


def expanding_publish(partitions: int) -> bytes:
    """Return the body of a publish with one expanding batch for each partition: 16 messages, 15 of them of 1 MiB."""
    values = [bytes(ROW_BYTES)] * ROWS + [random.Random(1).randbytes(_PAD_BYTES)]
    schema = pa.schema([pa.field("value", pa.binary())])
    batch = pa.record_batch([pa.array(values, pa.binary())], schema=schema)
    sink = pa.BufferOutputStream()
    writer = pa.ipc.RecordBatchStreamWriter(sink, schema, options=pa.ipc.IpcWriteOptions(compression="zstd"))
    writer.write_batch(batch)
    stream = sink.getvalue()
    # The payload of Lakelog is the stream without its schema.
    (metadata,) = struct.unpack_from("<i", stream, 4)
    payload = PREFIX.pack(1, BITS["value"]) + stream.slice(8 + metadata).to_pybytes()
    return write_publish(
        PublishFrame(partition=number, epoch=0, count=ROWS + 1, sequence=0, producer=NO_PRODUCER, payload=payload)
        for number in range(partitions)
    )
