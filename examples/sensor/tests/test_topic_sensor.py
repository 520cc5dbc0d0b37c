"""The decision of the sensor, and the sensor itself where Dagster is installed."""

import pytest
from topic_sensor import look

import lakelog
from lakelog.testing import MemoryInstallation


def test_each_message_is_read_by_one_run(lakelog_memory: MemoryInstallation) -> None:
    with lakelog.connect() as log:
        orders = log.topic("orders")
        orders.create(2)
        assert look(log, "orders", None) is None
        orders.publish_many([lakelog.Outgoing({"n": n}, partition=n % 2) for n in range(5)])
        first = look(log, "orders", None)
        assert first is not None and (first.count, first.start_offsets) == (5, {0: 0, 1: 0})
        assert look(log, "orders", first.cursor) is None
        orders.publish({"n": 5}, partition=1)
        second = look(log, "orders", first.cursor)
        assert second is not None and (second.count, second.end_offsets) == (1, {0: 3, 1: 3})
        assert second.start_offsets == first.end_offsets and second.name != first.name
        assert look(log, "orders", first.cursor, least=2) is None
        table = orders.read_arrow(start_offsets=second.start_offsets, end_offsets=second.end_offsets)
        assert table.num_rows == 1


def test_messages_that_retention_removed_are_not_waited_for(lakelog_memory: MemoryInstallation) -> None:
    with lakelog.connect() as log:
        orders = log.topic("orders")
        orders.create()
        orders.publish_many([{"n": n} for n in range(5)])
        orders.purge()
        orders.publish({"n": 5})
        found = look(log, "orders", None)
        assert found is not None and (found.count, found.start_offsets) == (1, {0: 5})


def test_the_sensor_of_dagster_starts_a_run_and_moves_its_cursor(lakelog_memory: MemoryInstallation) -> None:
    dagster = pytest.importorskip("dagster")
    from definitions import defs, new_orders

    with lakelog.connect() as log:
        log.topic("orders").create()
        log.topic("orders").publish_many([{"n": n} for n in range(3)])
    context = dagster.build_sensor_context()
    result = new_orders(context)
    (run,) = result.run_requests
    assert run.run_key == "0.3"
    done = defs.resolve_job_def("read_orders").execute_in_process(run_config=run.run_config)
    assert done.success and done.output_for_node("order_totals") == 3
    again = new_orders(dagster.build_sensor_context(cursor=result.cursor))
    assert isinstance(again, dagster.SkipReason)
