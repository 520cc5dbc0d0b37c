"""The dead letters of a group as a table, read by `format("lakelog")` with the option `deadLetters`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema

from lakelog.batches.schema import HEADERS, TIME
from lakelog.model.dead_letters import DeadLetter
from lakelog.model.names import check_name
from lakelog.spark.options import DEAD_LETTER_OPTIONS, known_options, topic_of
from lakelog.spark.session import ConnectionSettings, client, connection_of, require_topic, short_errors

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

DEAD_LETTERS = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("group", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("epoch", pa.int32()),
        pa.field("id", pa.string()),
        pa.field("at", TIME),
        pa.field("error", pa.string()),
        pa.field("traceback", pa.string()),
        pa.field("deliveries", pa.int32()),
        pa.field("failures", pa.int32()),
        pa.field("owner", pa.string()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
        pa.field("content_type", pa.string()),
        pa.field("correlation_id", pa.string()),
        pa.field("lineage", pa.string()),
        pa.field("created_at", TIME),
        # A fingerprint of the original key, value and headers, by which a redrive detects changes.
        pa.field("fingerprint", pa.string()),
    ]
)


@lru_cache(maxsize=1)
def dead_letter_schema() -> StructType:
    return from_arrow_schema(DEAD_LETTERS, prefer_timestamp_ntz=False)


def fingerprint(key: bytes | None, value: bytes | None, headers: Mapping[str, str] | None) -> str:
    """Return the fingerprints of key, value and headers; missing headers and empty headers are equal."""
    return "-".join((_digest(key), _digest(value), _digest(sorted((headers or {}).items()))))


def had_value(text: str) -> bool:
    """Return whether a fingerprint is that of a message with a value."""
    return text.split("-")[1] != _digest(None)


def _digest(found: object) -> str:
    return sha256(msgspec.msgpack.encode(found)).hexdigest()[:24]


@dataclass(frozen=True)
class DeadPartition(InputPartition):
    """The dead letters of one partition of the topic."""

    number: int


class DeadLetterReader(DataSourceReader):
    """Yield each dead letter that exists when the read reaches it, once."""

    def __init__(self, options: Mapping[str, str]) -> None:
        given, _ = known_options(options, DEAD_LETTER_OPTIONS, of="a read of dead letters")
        self._topic = topic_of(given)
        self._group = check_name("group", given["deadletters"])
        self._connection: ConnectionSettings = connection_of(options)

    def check(self) -> None:
        """Raise an error if the topic does not exist."""
        require_topic(self._connection, self._topic)

    @short_errors()
    def partitions(self) -> Sequence[InputPartition]:
        described = client(self._connection).topic(self._topic).describe()
        return [DeadPartition(number) for number in range(described.partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, DeadPartition)
        dead = client(self._connection).topic(self._topic).dead_letters(self._group)
        after: str | None = None
        while True:
            page = dead.page(partition.number, after)
            if page.letters:
                yield columns_of(page.letters, self._group)
            if page.next is None:
                return
            after = page.next


def columns_of(letters: Sequence[DeadLetter], group: str) -> pa.RecordBatch:
    own = {"group", "value", "headers", "fingerprint"}
    found: dict[str, list[object]] = {
        name: [getattr(letter, name) for letter in letters] for name in DEAD_LETTERS.names if name not in own
    }
    found["group"] = [group] * len(letters)
    found["value"] = [letter.raw for letter in letters]
    found["headers"] = [list(letter.headers.items()) for letter in letters]
    found["fingerprint"] = [fingerprint(letter.key, letter.raw, letter.headers) for letter in letters]
    columns = [pa.array(found[field.name], field.type) for field in DEAD_LETTERS]
    return pa.RecordBatch.from_arrays(columns, schema=DEAD_LETTERS)
