"""`read_arrow`: a topic as an Arrow table in one call, for scripts and notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakelog.client.connecting.connect import connect

if TYPE_CHECKING:
    import pyarrow as pa

    from lakelog.client.reading.limits import Time


def read_arrow(
    topic: str,
    *,
    since: Time | None = None,
    until: Time | None = None,
    columns: str | Sequence[str] | None = None,
    url: str | None = None,
    token: str | None = None,
) -> pa.Table:
    """Return the messages of a topic as one Arrow table: history and the newest messages.

    The function connects, reads and closes. A program that reads more than once, or needs other limits, calls
    `log.topic(name).read_arrow()` or `scan_arrow()`.

    Args:
        topic: The name of the topic.
        since: Read messages appended at this time or later: an aware datetime, ISO 8601, or how long ago, such as "1
            day" or a timedelta. Default: from the log start.
        until: Read messages appended before this time, written like `since`. Default: up to the newest message.
        columns: The columns, as names or as text with commas, or "*" for all. Default: partition, offset, appended_at,
            key, value, headers and content_type.
        url: Where to connect, as for `connect`. Default: `LAKELOG_URL`, then the file `.lakelog/env`.
        token: The token. Default: `LAKELOG_TOKEN`, then `.lakelog/env`.

    Raises:
        TopicNotFound: The topic does not exist.
    """
    with connect(url, token=token) as log:
        return log.topic(topic).read_arrow(since=since, until=until, columns=columns)
