"""The hot batch format: converts messages to bytes and back, as Arrow batches. It stores, sends and assigns nothing.

`encode` and `decode` are for trusted data from the store. Data from callers goes through `validate` or `read_stream`.
"""

from lakelog.batches.decoding import columns, decode, decode_all, decode_columns, rows, to_messages, with_positions
from lakelog.batches.encoding import concat, encode, encode_messages, from_columns, from_messages
from lakelog.batches.fingerprint import body_hash, key_hash
from lakelog.batches.limits import check_limits
from lakelog.batches.partitioning import hash_each, key_hashes, partitions_of, split
from lakelog.batches.schema import COLUMNS, FETCH, FORMAT, PUBLIC
from lakelog.batches.small import decode_small, decoded_bytes
from lakelog.batches.validation import read_stream, validate
from lakelog.model.partitioner import murmur2, partition_of

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
    "decode_all",
    "decode_columns",
    "decode_small",
    "decoded_bytes",
    "encode",
    "encode_messages",
    "from_columns",
    "from_messages",
    "hash_each",
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
