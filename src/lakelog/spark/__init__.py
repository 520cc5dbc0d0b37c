"""Topics on Spark: as tables, streams and sinks, and as work for executors.

The names that users import are loaded when first used. This package uses the client, the file formats and the object
store, never the engine or the server.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakelog.spark.configuring import configure
    from lakelog.spark.frames import read, stream
    from lakelog.spark.pipelines.backfilling import backfill
    from lakelog.spark.pipelines.compacting import compact
    from lakelog.spark.pipelines.copying import copy
    from lakelog.spark.pipelines.iceberg import iceberg
    from lakelog.spark.pipelines.latest import latest, update_latest
    from lakelog.spark.pipelines.replaying import replay
    from lakelog.spark.pipelines.sweeping import sweep
    from lakelog.spark.pipelines.tiering import tier
    from lakelog.spark.reading.topics import topic
    from lakelog.spark.repair.repairing import dead_letters, redrive
    from lakelog.spark.subscribing.subscribe import subscribe
    from lakelog.spark.views import attach
    from lakelog.spark.watching import watch
    from lakelog.spark.writing.columns import messages
    from lakelog.spark.writing.frames import write

__all__ = [
    "attach",
    "backfill",
    "compact",
    "configure",
    "copy",
    "dead_letters",
    "iceberg",
    "latest",
    "messages",
    "read",
    "redrive",
    "replay",
    "stream",
    "subscribe",
    "sweep",
    "tier",
    "topic",
    "update_latest",
    "watch",
    "write",
]

_HOMES = {
    "attach": "views",
    "backfill": "pipelines.backfilling",
    "compact": "pipelines.compacting",
    "configure": "configuring",
    "copy": "pipelines.copying",
    "dead_letters": "repair.repairing",
    "iceberg": "pipelines.iceberg",
    "latest": "pipelines.latest",
    "messages": "writing.columns",
    "read": "frames",
    "redrive": "repair.repairing",
    "replay": "pipelines.replaying",
    "stream": "frames",
    "subscribe": "subscribing.subscribe",
    "sweep": "pipelines.sweeping",
    "tier": "pipelines.tiering",
    "topic": "reading.topics",
    "update_latest": "pipelines.latest",
    "watch": "watching",
    "write": "writing.frames",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lakelog.spark.configuring import check_pyspark

    check_pyspark()
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
