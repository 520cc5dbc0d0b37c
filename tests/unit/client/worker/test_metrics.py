"""The metrics of workers: the histogram of handler durations, and the text for Prometheus."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

import lakelog
from lakelog.client.worker.completion import WorkerCounts
from lakelog.client.worker.metrics import BUCKETS, HandlerDurations, SubscriptionMetrics, render
from tests.kit.waiting import eventually
from tests.unit.docs.markdown import code, reference, table


def samples(text: str) -> dict[tuple[str, str], float]:
    """Return the samples by name and last label."""
    return {
        (sample.name, [*sample.labels.values()][-1]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_duration_is_counted_in_its_bucket() -> None:
    durations = HandlerDurations()
    for seconds in (0.0005, 0.001, 0.0011, 1.0, 301.0):
        durations.observe(seconds)
    metrics = SubscriptionMetrics(topic="orders", group="billing", counts=WorkerCounts(acked=5), durations=durations)
    found = samples(render([metrics]))
    bucket = "lakelog_worker_handler_seconds_bucket"
    assert [found[bucket, le] for le in ("0.001", "0.0025", "0.5", "1.0", "300.0", "+Inf")] == [2, 3, 3, 4, 4, 5]
    assert sum(name == bucket for name, _ in found) == len(BUCKETS) + 1
    assert found["lakelog_worker_handler_seconds_count", "billing"] == 5
    assert abs(found["lakelog_worker_handler_seconds_sum", "billing"] - 302.0026) < 1e-6
    assert found["lakelog_worker_messages_total", "acked"] == 5


def test_the_workers_of_a_client_count_the_handlers_that_ran() -> None:
    """Messages that the filter rejects run no handler."""
    with lakelog.connect("memory://worker-metrics") as log:
        orders = log.topic("orders")
        orders.create()
        orders.publish_many(list(range(10)))
        orders.subscribe(lambda value: None, group="g", start_from="earliest", filter=lambda value: value < 4)
        assert "lakelog_worker_messages_total{" not in log.metrics()
        log.start()
        eventually(lambda: log.counts["orders/g"].acked == 10, what="all are finished")
        found = samples(log.metrics())
        log.stop()
    assert found["lakelog_worker_handler_seconds_count", "g"] == 4
    assert (found["lakelog_worker_messages_total", "acked"], found["lakelog_worker_messages_total", "skipped"]) == (
        10,
        6,
    )


def test_a_batch_handler_counts_once_per_batch() -> None:
    with lakelog.connect("memory://batch-metrics") as log:
        orders = log.topic("orders")
        orders.create()
        orders.publish_many(list(range(10)))
        orders.subscribe(lambda values: None, group="g", start_from="earliest", batch=10, batch_wait=20.0)
        log.start()
        eventually(lambda: log.counts["orders/g"].acked == 10, what="all are finished")
        found = samples(log.metrics())
        log.stop()
    assert found["lakelog_worker_handler_seconds_count", "g"] == 1


def test_every_metric_of_workers_is_documented() -> None:
    documented = {code(row[0]): row[1] for row in table(reference("metrics"), "metric of a worker")}
    families = text_string_to_metric_families(render([]))
    # The parser leaves out the suffix of counters.
    assert documented == {each.name + "_total" * (each.type == "counter"): each.type for each in families}
