"""Trace context in headers, and a client that does not load OpenTelemetry itself."""

from __future__ import annotations

import subprocess
import sys

import pytest
from opentelemetry import trace

from lakelog.client import tracing
from lakelog.client.tracing import publish_span, trace_lines, with_context
from lakelog.model.limits import MAX_HEADERS

CONTEXT = {"traceparent": "00-1-2-01", "tracestate": "a=b"}
_PROGRAM = """
import sys
import lakelog
sys.modules["opentelemetry"] = None  # as if it were not installed
with lakelog.connect("memory://untraced") as log:
    topic = log.topic("orders")
    topic.create()
    topic.publish("a")
    with topic.producer() as producer:
        producer.send("b")
    topic.subscribe(print, group="g", start_from="earliest")
    log.start()
print(sorted(name for name in sys.modules if name.startswith("opentelemetry.")))
"""


def test_context_is_added_beside_the_callers_headers() -> None:
    given = {"h": "1"}
    assert with_context(given, CONTEXT) == {"h": "1", **CONTEXT} and given == {"h": "1"}
    assert with_context(None, CONTEXT) == CONTEXT


@pytest.mark.parametrize("name", ["traceparent", "Traceparent", "TRACEPARENT"])
def test_the_callers_context_is_kept(name: str) -> None:
    assert with_context({name: "mine"}, CONTEXT) == {name: "mine"}


def test_the_callers_tracestate_is_kept() -> None:
    assert with_context({"tracestate": "mine"}, CONTEXT) == {"tracestate": "mine", "traceparent": "00-1-2-01"}


@pytest.mark.parametrize(("free", "added"), [(0, []), (1, ["traceparent"]), (2, ["traceparent", "tracestate"])])
def test_context_never_exceeds_the_limit_of_headers(free: int, added: list[str]) -> None:
    given = {f"h{number}": "" for number in range(MAX_HEADERS - free)}
    assert [name for name in with_context(given, CONTEXT) or {} if name not in given] == added


def test_a_context_that_is_too_long_is_left_out() -> None:
    assert with_context(None, {**CONTEXT, "tracestate": "x" * 5000}) == {"traceparent": "00-1-2-01"}
    assert with_context(None, {}) is None


def test_without_a_provider_there_is_no_span(monkeypatch: pytest.MonkeyPatch) -> None:
    for provider in (trace.ProxyTracerProvider(), trace.NoOpTracerProvider()):
        monkeypatch.setattr(trace, "get_tracer_provider", lambda provider=provider: provider)
        assert tracing.tracing() is None and type(publish_span("orders")) is tracing.PublishSpan
        assert trace_lines() == ""


def test_the_client_works_without_opentelemetry() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr
