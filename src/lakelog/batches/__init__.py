"""The hot batch format: messages to bytes and back, as Arrow batches. It stores, sends and assigns nothing.

`encode` and `decode` are for our own data; whatever a caller sent goes through `validate` or `read_stream`.
"""

from lakelog.batches.decoding import columns, decode, rows, to_messages, with_positions
from lakelog.batches.encoding import concat, encode, from_columns, from_messages
from lakelog.batches.fingerprint import body_hash, key_hash
from lakelog.batches.limits import check_limits
from lakelog.batches.partitioning import key_hashes, murmur2, partition_of, partitions_of, split
from lakelog.batches.schema import COLUMNS, FETCH, FORMAT, PUBLIC
from lakelog.batches.validation import read_stream, validate

__all__ = [
    "COLUMNS",
    "FETCH",
    "FORMAT",
    "PUBLIC",
    "body_hash",
    "check_limits",
    "columns",
    "concat",
    "decode",
    "encode",
    "from_columns",
    "from_messages",
    "key_hash",
    "key_hashes",
    "murmur2",
    "partition_of",
    "partitions_of",
    "read_stream",
    "rows",
    "split",
    "to_messages",
    "validate",
    "with_positions",
]
