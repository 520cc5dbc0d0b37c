"""Warnings about where a new stream starts, if that may be unexpected. `reader` logs them."""

from __future__ import annotations

from lakelog.model.lake import Watermarks
from lakelog.spark.streaming.options import StreamOptions
from lakelog.spark.streaming.planning import Offsets, wished_offsets


def skipping(wish: StreamOptions, begin: Offsets, marks: Watermarks) -> str | None:
    """Return the warning that a stream skips existing messages, unless its options say where to start."""
    count = sum(offset - marks.starts.get(partition, offset) for partition, offset in begin.items())
    if wish.has_start or not count:
        return None
    skipped = "1 existing message is" if count == 1 else f"{count:,} existing messages are"
    return (
        f"The stream starts at the end of topic '{wish.topic}': {skipped} skipped. To read them, "
        "use .option('start', 'earliest') and a new checkpoint."
    )


def ignoring(wish: StreamOptions, positions: Offsets, marks: Watermarks) -> str | None:
    """Return the warning that the group's position overrides the options, if that makes a difference."""
    if not wish.has_start or wished_offsets(wish, marks) == positions:
        return None
    if wish.start_offsets:
        named = "startOffsets"
        partition, offset = min(wish.start_offsets.items())
        to = f"--partition {partition} --to {offset}"
    else:
        named, to = f"start={wish.start}", f"--to {wish.start}"
    return (
        f"Group '{wish.group}' already exists and resumes at its committed offsets; option {named} is ignored. To "
        f"start over, stop the query, run `lakelog groups seek {wish.group} {wish.topic} {to}`, and start the query "
        "with a new checkpoint."
    )
