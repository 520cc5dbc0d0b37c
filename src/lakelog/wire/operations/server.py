"""The operations about the server itself. They need no token."""

from __future__ import annotations

from typing import Any

from lakelog.wire import shapes
from lakelog.wire.operations.operation import JSON, PUBLIC, Media, Operation

SERVER: tuple[Operation[Any, Any], ...] = (
    Operation(
        name="healthz",
        method="GET",
        path="/healthz",
        rights=PUBLIC,
        summary="Whether the process is alive",
        media=Media(replies={200: {JSON: (shapes.Health,)}}),
    ),
    Operation(
        name="readyz",
        method="GET",
        path="/readyz",
        rights=PUBLIC,
        summary="Whether calls can be served now",
        media=Media(replies={200: {JSON: (shapes.Health,)}, 503: {JSON: (shapes.Health,)}}),
    ),
    Operation(
        name="metrics",
        method="GET",
        path="/metrics",
        rights=PUBLIC,
        summary="Metrics for Prometheus",
        media=Media(replies={200: {"text/plain": ()}}),
    ),
    Operation(
        name="openapi",
        method="GET",
        path="/openapi.json",
        rights=PUBLIC,
        summary="This description",
        media=Media(replies={200: {JSON: ()}}),
    ),
)
