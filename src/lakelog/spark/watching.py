"""`lakelog.spark.watch`: the streaming queries of a session as Prometheus metrics, with their lag in messages and time.

Spark reports the progress of each micro-batch to a listener. The lag is measured when the metrics are read, so that it
also grows while a query does not advance.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from lakelog.errors import LakelogError
from lakelog.spark.session import ConnectionSettings, client, connection_to

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress

    from lakelog import Lakelog

_log = logging.getLogger(__name__)
_METRICS: Mapping[str, tuple[str, str]] = {
    "lakelog_spark_lag_messages": ("gauge", "Messages of the topic that the query has not read."),
    "lakelog_spark_lag_seconds": ("gauge", "Age of the oldest message that the query has not read."),
    "lakelog_spark_rows_total": ("counter", "Rows that the query has read since the listener was added."),
    "lakelog_spark_batches_total": ("counter", "Micro-batches since the listener was added."),
    "lakelog_spark_batch_seconds": ("gauge", "Duration of the last micro-batch, by phase."),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryProgress:
    """The last known figures of a running query."""

    id: str
    name: str
    rows: int = 0
    batches: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    """The duration of the last micro-batch by phase."""
    ends: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """The next offset to read, by topic and partition."""

    def after(self, progress: StreamingQueryProgress) -> QueryProgress:
        """Return the state after a micro-batch."""
        ends = dict(found for source in progress.sources for found in _ends_of(source.endOffset))
        return replace(
            self,
            name=progress.name or self.name,
            rows=self.rows + progress.numInputRows,
            batches=self.batches + 1,
            seconds={phase: each / 1000 for phase, each in progress.durationMs.items()},
            ends={**self.ends, **ends},
        )


class QueryListener(StreamingQueryListener):
    """Keeps the progress of the running queries of a session."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queries: dict[str, QueryProgress] = {}

    def queries(self) -> list[QueryProgress]:
        with self._lock:
            return list(self._queries.values())

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        query = QueryProgress(id=str(event.id), name=event.name or str(event.id))
        with self._lock:
            self._queries[query.id] = query

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        key = str(event.progress.id)
        with self._lock:
            known = self._queries.get(key) or QueryProgress(id=key, name=key)
            self._queries[key] = known.after(event.progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing: an idle query keeps its figures."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        with self._lock:
            self._queries.pop(str(event.id), None)


class StreamWatcher:
    """The metrics of the streaming queries of a session: as text, and over HTTP."""

    def __init__(self, spark: SparkSession, connection: ConnectionSettings) -> None:
        self._spark, self._connection = spark, connection
        self._listener = QueryListener()
        self._server: ThreadingHTTPServer | None = None
        spark.streams.addListener(self._listener)

    def metrics(self) -> str:
        """Return the metrics of the running queries in Prometheus' text format."""
        found: dict[str, list[str]] = {name: [] for name in _METRICS}
        for query in self._listener.queries():
            for name, labels, number in self._figures(query):
                found[name].append(f"{name}{{{labels}}} {number}")
        lines = []
        for name, (kind, about) in _METRICS.items():
            lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}", *found[name]]
        return "\n".join(lines) + "\n"

    def serve(self, port: int, host: str = "127.0.0.1") -> int:
        """Offer the metrics at `/metrics`, and return the port.

        Args:
            port: The port; 0 for a free one.
            host: The address to listen at. Default: this machine only.
        """
        watcher = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = watcher.metrics().encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Do nothing: a scrape is no event."""

        self._server = ThreadingHTTPServer((host, port), Handler)
        threading.Thread(target=self._server.serve_forever, name="lakelog-metrics", daemon=True).start()
        return int(self._server.server_address[1])

    def stop(self) -> None:
        """Remove the listener, and close the port."""
        self._spark.streams.removeListener(self._listener)
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def _figures(self, query: QueryProgress) -> Iterator[tuple[str, str, float]]:
        of_query = f'query="{_escaped(query.name)}",id="{query.id}"'
        yield "lakelog_spark_rows_total", of_query, query.rows
        yield "lakelog_spark_batches_total", of_query, query.batches
        for phase, seconds in sorted(query.seconds.items()):
            yield "lakelog_spark_batch_seconds", f'{of_query},phase="{phase}"', seconds
        for topic, ends in sorted(query.ends.items()):
            try:
                messages, seconds = lag_of(client(self._connection), topic, ends)
            except LakelogError as error:
                _log.warning("Cannot measure the lag of query '%s': %s", query.name, error)
                continue
            yield "lakelog_spark_lag_messages", f'{of_query},topic="{topic}"', messages
            yield "lakelog_spark_lag_seconds", f'{of_query},topic="{topic}"', seconds


def watch(spark: SparkSession, *, url: str | None = None, token: str | None = None) -> StreamWatcher:
    """Add a listener to a session, and return it: `watch(spark).serve(9090)` offers metrics for Prometheus.

    The metrics are the lag of each streaming query in messages and seconds, its rows and micro-batches, and the
    durations of the last micro-batch. They cover queries that start later, and the queries of this session only.

    Args:
        spark: The session.
        url: The URL of the server. Default: that of the session, then `LAKELOG_URL`, then the server of `lakelog dev`.
        token: The token. Default: that of the session, then `LAKELOG_TOKEN`, then the token of `lakelog dev`.
    """
    return StreamWatcher(spark, connection_to(url, token, spark))


def lag_of(log: Lakelog, topic: str, ends: Mapping[int, int]) -> tuple[int, float]:
    """Return the number of messages after these offsets, and the age of the oldest of them in seconds."""
    marks = log.lake.watermarks(topic)
    count, oldest = 0, None
    for partition, high in marks.ends.items():
        at = max(ends.get(partition, 0), marks.starts.get(partition, 0))
        if at >= high:
            continue
        count += high - at
        times = log.topic(topic).fetch_arrow(partition, offset=at, limit=1).column("appended_at")
        if len(times) and (oldest is None or times[0].as_py() < oldest):
            oldest = times[0].as_py()
    return count, 0.0 if oldest is None else max(0.0, (datetime.now(UTC) - oldest).total_seconds())


def _ends_of(text: str | None) -> Iterator[tuple[str, Mapping[int, int]]]:
    """Yield the topic and the next offsets, if the offset is one of a stream of Lakelog."""
    try:
        found = json.loads(text or "null")
    except ValueError:
        return
    if isinstance(found, dict) and {"topic", "incarnation", "end"} <= set(found):
        yield found["topic"], {int(partition): offset for partition, offset in found["end"].items()}


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
