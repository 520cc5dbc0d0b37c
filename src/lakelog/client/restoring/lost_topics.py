"""Finds the files of topics that a restored database does not know, because they were created after the backup."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass

from lakelog.objectstore import ObjectStore
from lakelog.segments.layout import is_table_file, parse_segment_path, topic_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class LostTopic:
    """A topic of which only files are left.

    Attributes:
        folder: The folder of its files in the object store.
        incarnation: The id of the topic.
        topic: The name of the topic, if it was an Iceberg table. Other files do not have it.
        files: Files with messages.
        messages: Offsets that the files have.
    """

    folder: str
    incarnation: int
    topic: str | None
    files: int
    messages: int


def lost_topics(store: ObjectStore, newest: int) -> list[LostTopic]:
    """Return the topics in the store whose id is above `newest`, the newest that the database has given."""
    tables: dict[str, str] = {}
    files: dict[tuple[int, str], int] = defaultdict(int)
    ends: dict[tuple[str, int], tuple[int, int]] = {}
    for each in store.list():
        place = parse_segment_path(each.path)
        if place is not None and place.incarnation > newest:
            folder = topic_folder(place.environment_id, place.incarnation)
            files[place.incarnation, folder] += 1
            first, end = ends.get((folder, place.partition), (place.first, place.end))
            ends[folder, place.partition] = min(first, place.first), max(end, place.end)
        elif is_table_file(each.path) and each.path.endswith(".json"):
            tables["/".join(each.path.split("/")[:2])] = each.path
    return [
        LostTopic(
            folder=folder,
            incarnation=incarnation,
            topic=json.loads(store.get(tables[folder]))["properties"]["lakelog.topic"] if folder in tables else None,
            files=count,
            messages=sum(end - first for (where, _), (first, end) in ends.items() if where == folder),
        )
        for (incarnation, folder), count in sorted(files.items())
    ]
