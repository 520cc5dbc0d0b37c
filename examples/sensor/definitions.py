"""The sensor and the asset for Dagster: `dagster dev -f definitions.py`."""

import dagster
from topic_sensor import look

import lakelog

TOPIC = "orders"


class Offsets(dagster.Config):
    start_offsets: dict[str, int]
    end_offsets: dict[str, int]


@dagster.asset
def order_totals(config: Offsets) -> int:
    """Read the messages of a run as an Arrow table."""
    with lakelog.connect() as log:
        table = log.topic(TOPIC).read_arrow(
            start_offsets={int(partition): offset for partition, offset in config.start_offsets.items()},
            end_offsets={int(partition): offset for partition, offset in config.end_offsets.items()},
        )
    return table.num_rows


read_orders = dagster.define_asset_job("read_orders", selection=[order_totals])


@dagster.sensor(job=read_orders, minimum_interval_seconds=30)
def new_orders(context: dagster.SensorEvaluationContext) -> dagster.SensorResult | dagster.SkipReason:
    with lakelog.connect() as log:
        found = look(log, TOPIC, context.cursor)
    if found is None:
        return dagster.SkipReason(f"Topic {TOPIC} has no new messages.")
    offsets = Offsets(
        start_offsets={str(partition): offset for partition, offset in found.start_offsets.items()},
        end_offsets={str(partition): offset for partition, offset in found.end_offsets.items()},
    )
    run = dagster.RunRequest(run_key=found.name, run_config=dagster.RunConfig(ops={"order_totals": offsets}))
    return dagster.SensorResult(run_requests=[run], cursor=found.cursor)


defs = dagster.Definitions(assets=[order_totals], jobs=[read_orders], sensors=[new_orders])
