"""`lakelog.spark.attach`: every topic as a temporary view of the session, for SQL."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from lakelog.errors import InvalidRequest
from lakelog.spark.frames import read
from lakelog.spark.session import announced, client, connection_to

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PREFIX = "lakelog_"


def attach(
    spark: SparkSession,
    *,
    topics: Sequence[str] | None = None,
    prefix: str = PREFIX,
    url: str | None = None,
    token: str | None = None,
) -> dict[str, str]:
    """Create a temporary view for each topic, such as `lakelog_orders`, and return the topic of each view.

    In the name of a view, `.` and `-` become `_`. Each query reads the messages that exist when it runs. A topic that
    is created later has no view until `attach` is called again.

    Args:
        spark: The session.
        topics: The topics. Default: all topics of the environment.
        prefix: The beginning of the names of the views. Default: `lakelog_`.
        url: The URL of the server. Default: that of the session, then `LAKELOG_URL`, then the server of `lakelog dev`.
        token: The token. Default: that of the session, then `LAKELOG_TOKEN`, then the token of `lakelog dev`.

    Raises:
        InvalidRequest: If two topics would have the same view. No view is created then.
        TopicNotFound: If a named topic does not exist.
    """
    connection = connection_to(url, token, spark)
    if topics is None:
        with announced(connection):
            topics = [found.name for found in client(connection).topics()]
    views = view_names(topics, prefix)
    for view, name in views.items():
        read(spark, name, url=connection.url, token=connection.token).createOrReplaceTempView(view)
    return views


def view_names(topics: Iterable[str], prefix: str = PREFIX) -> dict[str, str]:
    """Return the topic of each view. Spark's names of views ignore case, so two names that differ by it collide."""
    views: dict[str, str] = {}
    taken: dict[str, str] = {}
    for topic in topics:
        view = prefix + re.sub(r"[^0-9A-Za-z_]", "_", topic)
        other = taken.setdefault(view.lower(), topic)
        if other != topic:
            raise InvalidRequest(
                f"Topics {other!r} and {topic!r} would both be the view {view!r}. Attach one of them: "
                f"attach(spark, topics=[{topic!r}]), or the other with a different prefix."
            )
        views[view] = topic
    return views
