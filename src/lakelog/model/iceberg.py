"""Topics as Iceberg tables: what a table lacks of its topic, and the commit of its next version.

The engine makes these values, HTTP carries them, and the pipeline that writes the metadata of tables uses them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Literal

from msgspec import Meta

from lakelog.model.columns import TopicColumns
from lakelog.model.segment import MAX_PATH_LENGTH, Segment
from lakelog.model.structs import Name, Natural, Positive, Request, Time, Value

MAX_ICEBERG_PATHS = 50_000
"""The largest number of paths that a commit adds or removes."""

TablePath = Annotated[str, Meta(min_length=1, max_length=MAX_PATH_LENGTH)]
TablePaths = Annotated[list[TablePath], Meta(max_length=MAX_ICEBERG_PATHS)]
Ranges = Mapping[int, list[tuple[int, int]]]
"""Ranges of offsets by partition: the first offset and the end, which is not included."""


LATEST_SUFFIX = "__latest"
"""The end of the name of a key table. The rest is the name of the topic."""


class TableKind(StrEnum):
    """The tables that a topic can have."""

    MESSAGES = "messages"
    """All messages that are in files."""
    LATEST = "latest"
    """The newest message of each key."""


class IcebergOperation(StrEnum):
    """The kinds of snapshots of a table, in the words of Iceberg."""

    APPEND = "append"
    """It adds files."""
    REPLACE = "replace"
    """It exchanges files for files with the same messages."""
    OVERWRITE = "overwrite"
    """It exchanges files for files with other messages: a new file has the messages of an old one, and more."""
    DELETE = "delete"
    """It removes files that retention passed."""


class IcebergStep(Value, frozen=True, kw_only=True):
    """One snapshot that brings a table closer to its topic.

    Attributes:
        operation: The kind of the snapshot.
        added: The segments that it adds.
        removed: The paths of the files that it removes.
        covered: The offsets that the table has after it, by partition.
    """

    operation: IcebergOperation
    added: list[Segment]
    removed: list[str]
    covered: Ranges


class IcebergChangesRequest(Request, frozen=True, kw_only=True):
    """A request for the difference between a topic and its table.

    Attributes:
        topic: The topic.
        kind: The table. For the table of keys, the reply has no steps: the pipeline computes its content. Default: the
            table of messages.
    """

    topic: Name
    kind: Annotated[
        Literal["messages", "latest"], Meta(description="The table of all messages, or of the newest one of each key.")
    ] = "messages"


class IcebergChanges(Value, frozen=True, kw_only=True):
    """The difference between the verified segments of a topic and the files of its table.

    Attributes:
        topic: The name of the topic.
        incarnation: The id of the topic, which a recreated topic does not share.
        environment_id: The id of the environment.
        store: The URL of the object store, if there is one.
        version: The version of the table; 0 if there is no table.
        metadata: The path of its metadata file, if there is a table.
        steps: The snapshots to add, in order. Each is correct by itself.
        rest: Segments to add or to remove that are left for another call.
        now: The database's time.
        columns: The typed columns of the topic's values; None if it has none.
    """

    topic: str
    incarnation: int
    environment_id: int
    store: str | None
    version: int
    metadata: str | None
    steps: list[IcebergStep]
    rest: int
    now: Time
    columns: TopicColumns | None = None


class IcebergCommit(Request, frozen=True, kw_only=True):
    """The next version of a table, whose files are written.

    Attributes:
        topic: The name of the topic.
        incarnation: The id of the topic.
        version: The version that the commit replaces; 0 to create the table.
        metadata: The path of the new metadata file.
        added: The paths of all files that the new version has and the old one did not have.
        removed: The paths of all files that the old version had and the new one does not have.
        oldest: The version that first had the oldest snapshot that is kept. Files that left the table before it may be
            swept.
        kind: The table. Default: the table of messages.
    """

    topic: Name
    incarnation: Positive
    version: Natural
    metadata: TablePath
    added: TablePaths
    removed: TablePaths
    oldest: Natural
    kind: TableKind = TableKind.MESSAGES


class IcebergTable(Value, frozen=True, kw_only=True):
    """A topic's table.

    Attributes:
        topic: The name of the topic.
        version: The version of the table, which each commit raises.
        metadata: The path of its metadata file.
        kind: Which table of the topic it is.
        name: The name of the table in the catalog.
    """

    topic: str
    version: int
    metadata: str
    kind: TableKind = TableKind.MESSAGES

    @property
    def name(self) -> str:
        return f"{self.topic}{LATEST_SUFFIX}" if self.kind is TableKind.LATEST else self.topic
