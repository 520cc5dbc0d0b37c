"""The worker: `lakelog worker orders_api.worker:log` runs it."""

import lakelog
from orders_api.orders import TOPIC, Order

log = lakelog.connect()
orders = log.topic(TOPIC, type=Order)


@orders.subscribe(group="billing", concurrency=8, start_from="earliest", retries=3)
def bill(order: Order) -> None:
    if order.total < 0:
        raise ValueError("a negative total")
    print(f"billed {order.total} to {order.account}")
