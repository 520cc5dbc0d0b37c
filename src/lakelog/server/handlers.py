"""Creates the handlers of all operations over one engine. It handles nothing itself."""

from __future__ import annotations

from lakelog.engine import Engine
from lakelog.engine.operations import bind
from lakelog.server.answering import Answering
from lakelog.server.calls import Handler
from lakelog.server.consuming import Consuming
from lakelog.server.dispatch import Dispatch
from lakelog.server.drain import Drain
from lakelog.server.fetching import Fetching
from lakelog.server.group_metrics import GroupMetrics
from lakelog.server.group_routing import GroupRouting
from lakelog.server.iceberg import IcebergCatalogHandlers
from lakelog.server.metrics import Metrics
from lakelog.server.publishing import Publishing
from lakelog.server.pushing import Pushing
from lakelog.server.streams import Streams
from lakelog.wire.operations import OPERATIONS


def make_handlers(
    engine: Engine, drain: Drain, metrics: Metrics, routing: GroupRouting | None, group_metrics: GroupMetrics
) -> dict[str, Handler]:
    """Return the handlers by the name of their operation, except those about the server itself."""
    verbs = bind(engine)
    publishing = Publishing(engine, metrics)
    return {
        **{each.name: Dispatch(each, verbs, drain, routing) for each in OPERATIONS if verbs.has(each)},
        "publish": publishing.publish,
        "stage": publishing.stage,
        "group_metrics": group_metrics.page,
        "fetch": Fetching(engine, drain, metrics).fetch,
        **IcebergCatalogHandlers(engine).handlers(),
        **_consuming_handlers(engine, drain, metrics, routing),
    }


def _consuming_handlers(
    engine: Engine, drain: Drain, metrics: Metrics, routing: GroupRouting | None
) -> dict[str, Handler]:
    streams = Streams()
    answering = Answering(engine, metrics, streams, routing)
    handlers = {
        "consume": Consuming(engine, drain, metrics, answering, routing).consume,
        **answering.handlers(),
    }
    if routing is not None:
        handlers = {name: routing.naming_home(handler) for name, handler in handlers.items()}
    return {**handlers, "push": Pushing(engine, drain, metrics, streams).push}
