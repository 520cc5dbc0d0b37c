"""Subscribe a handler, publish messages, and handle them. With LAKELOG_URL it uses a server or a database.

python examples/worker.py
"""

import os
import threading

import lakelog

log = lakelog.connect(os.environ.get("LAKELOG_URL", "memory://example"))
orders = log.topic("example-work")
orders.create(partitions=4, if_missing=True)
gave_up = threading.Event()


def look_at(delivery: lakelog.Delivery[dict[str, int]], error: Exception) -> None:
    print(f"gave up {delivery.value}: {error}")
    gave_up.set()


@orders.subscribe(group="billing", concurrency=8, start_from="earliest", retries=1, on_dead=look_at)
def bill(order: dict[str, int], delivery: lakelog.Delivery[dict[str, int]]) -> None:
    if order["total"] < 0:
        raise ValueError("a negative total")  # retried, then a dead letter
    print(f"billed {order['total']}, attempt {delivery.attempt}")


if __name__ == "__main__":
    orders.publish_many([{"total": 12}, {"total": -1}, {"total": 30}])
    log.start()  # a service calls log.run(), which ends at SIGTERM; or: lakelog worker examples.worker:log
    gave_up.wait(30)
    log.close()
