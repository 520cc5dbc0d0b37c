"""Creates a server span for each publish and fetch, in the trace of the caller's `traceparent`.

Only the OpenTelemetry API is used: to collect traces, configure a provider before the server starts. Without a
provider, nothing is recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from lakelog.server.routing import Row

_PROPAGATOR = TraceContextTextMapPropagator()
_CONTEXT_HEADERS = (b"traceparent", b"tracestate")


class Telemetry:
    """Creates spans if a provider is configured."""

    def __init__(self) -> None:
        provider = trace.get_tracer_provider()
        is_real = not isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider)
        self._tracer = provider.get_tracer("lakelog.server") if is_real else None

    @property
    def enabled(self) -> bool:
        return self._tracer is not None

    @contextmanager
    def span(self, operation: Row, headers: dict[bytes, bytes]) -> Iterator[Span]:
        assert self._tracer is not None
        carrier = {name.decode(): headers[name].decode("latin-1") for name in _CONTEXT_HEADERS if name in headers}
        attributes = {"http.request.method": operation.method, "http.route": operation.path}
        with self._tracer.start_as_current_span(
            f"{operation.method} {operation.path}",
            context=_PROPAGATOR.extract(carrier),
            kind=SpanKind.SERVER,
            attributes=attributes,
            # A refusal is a normal response; the span has its status.
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            yield span


def set_status(span: Span, status: int) -> None:
    span.set_attribute("http.response.status_code", status)
    if status >= 500:
        span.set_status(Status(StatusCode.ERROR))
