"""Print one trace: a publish, a retry, the dead letter, its redrive, and the ack. It needs opentelemetry-sdk.

python examples/trace.py
"""

import logging
import os
import threading

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import lakelog

# A service uses BatchSpanProcessor(OTLPSpanExporter()) instead, and the rest stays the same.
exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
logging.getLogger("lakelog").setLevel(logging.CRITICAL)  # the failures below are on purpose

log = lakelog.connect(os.environ.get("LAKELOG_URL", "memory://example"))
orders = log.topic("traced-orders")
orders.create(if_missing=True)
addresses: dict[str, str] = {}
dead, done = threading.Event(), threading.Event()


@orders.subscribe(
    group="shipping",
    start_from="earliest",
    retries=lakelog.Fixed(max=1, seconds=0.1),
    on_dead=lambda delivery, error: dead.set(),
    on_ack=lambda delivery: done.set(),
)
def ship(order: dict[str, str]) -> None:
    with trace.get_tracer("shop").start_as_current_span("look up the address"):
        print("ship to", addresses[order["account"]])


def show(spans: list[ReadableSpan]) -> None:
    """Print the spans of the trace as a tree, in the order in which they started."""

    def below(parent: int | None, indent: str) -> None:
        for span in sorted(spans, key=lambda span: span.start_time or 0):
            if (span.parent.span_id if span.parent else None) == parent:
                attempt = (span.attributes or {}).get("lakelog.attempt")
                facts = [f"attempt {attempt}"] if attempt else []
                facts += ["redriven"] if "lakelog.lineage" in (span.attributes or {}) else []
                facts += ["linked"] if span.links else []
                facts += [event.name for event in span.events if event.name != "exception"]
                print(f"{indent}{span.name}" + (f" ({', '.join(facts)})" if facts else ""))
                below(span.get_span_context().span_id, indent + "  ")

    below(None, "")


if __name__ == "__main__":
    with trace.get_tracer("shop").start_as_current_span("checkout") as checkout:
        orders.publish({"account": "acct_1"}, key="acct_1")
    log.start()
    dead.wait(30)
    addresses["acct_1"] = "12 Main Street"
    orders.dead_letters("shipping").redrive()
    done.wait(30)
    log.close()
    trace_id = checkout.get_span_context().trace_id
    show([span for span in exporter.get_finished_spans() if span.get_span_context().trace_id == trace_id])
