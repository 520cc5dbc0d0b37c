"""The worker of the compose file: prints each order. Replace it with your own handlers."""

import lakelog

log = lakelog.connect()
orders = log.topic("orders")


@orders.subscribe(group="billing", start_from="earliest")
async def bill(order, delivery):
    print("billed", order, "on attempt", delivery.attempt, flush=True)
