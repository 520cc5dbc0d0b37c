"""The reference of segments says what the code does."""

from __future__ import annotations

from lakelog.segments.layout import segment_path
from lakelog.segments.schema import FORMAT, SCHEMA
from lakelog.segments.writer import CONTENT_KEY, FORMAT_KEY, GROUP_BYTES, GROUP_ROWS, PARTITION_KEY
from tests.unit.docs.markdown import code, reference, section, table

TEXT = reference("segments")


def test_columns() -> None:
    documented = [(int(row[0]), code(row[1]), code(row[2])) for row in table(section(TEXT, "Columns"), "field id")]
    # Arrow also names the map's two fields.
    kinds = {field.name: str(field.type) for field in SCHEMA} | {"headers": "map<string, string>"}
    assert documented == [(int(field.metadata[b"PARQUET:field_id"]), field.name, kinds[field.name]) for field in SCHEMA]


def test_file() -> None:
    text = section(TEXT, "File layout")
    assert f"`{FORMAT_KEY}` ({FORMAT})" in text and f"`{PARTITION_KEY}`" in text and f"`{CONTENT_KEY}`" in text
    assert f"{GROUP_ROWS:,} messages and about {GROUP_BYTES >> 20} MiB" in text


def test_paths() -> None:
    shape = section(TEXT, "Paths")
    path = segment_path(7, 12, 3, 100, 250, "0123456789abcdef")
    assert "e{environment}/t{incarnation}/p{partition, 5 digits}/{first, 20 digits}-{end, 20 digits}-" in shape
    assert path == f"e7/t12/p{3:05d}/{100:020d}-{250:020d}-0123456789abcdef.parquet"
