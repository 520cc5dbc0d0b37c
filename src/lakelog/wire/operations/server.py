"""The operations about the server itself. Those that name no group or topic need no token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakelog.wire import shapes
from lakelog.wire.operations.operation import JSON, METRICS, PUBLIC, Body, Media, Operation


def _public(name: str, path: str, summary: str, replies: Mapping[int, Body]) -> Operation[Any, Any]:
    media = Media(replies=replies)
    return Operation(name=name, method="GET", path=path, rights=PUBLIC, summary=summary, media=media)


_HEALTH: Body = {JSON: (shapes.Health,)}
SERVER: tuple[Operation[Any, Any], ...] = (
    _public("healthz", "/healthz", "Return whether the process is alive", {200: _HEALTH}),
    _public("readyz", "/readyz", "Return whether calls can be served now", {200: _HEALTH, 503: _HEALTH}),
    _public("metrics", "/metrics", "Metrics for Prometheus", {200: {"text/plain": ()}}),
    Operation(
        name="group_metrics",
        method="GET",
        path="/v1/metrics",
        rights=METRICS,
        summary="Metrics of the groups and topics of the environment, for Prometheus",
        media=Media(replies={200: {"text/plain": ()}}),
    ),
    _public("openapi", "/openapi.json", "This description", {200: {JSON: ()}}),
)
