"""A user's handlers without annotations, for type checkers only: only lines with `# refused` must be errors."""
# mypy: allow-untyped-defs

from __future__ import annotations

import lakelog

orders = lakelog.connect("memory://").topic("orders")
later = lakelog.connect_async("memory://").topic("orders")


@orders.subscribe(group="a")
def plain(order): ...


@orders.subscribe(group="b", concurrency=32, retries=5, start_from="earliest")
async def bill(order, delivery):
    print("billed", order["total"], "attempt", delivery.attempt)


@later.subscribe(group="c")
def with_delivery(order, delivery):
    delivery.ack()


@later.subscribe(group="d")
async def coroutine(order): ...


@orders.subscribe(group="e")  # refused
def nothing(): ...


@later.subscribe(group="f")  # refused
async def three(order, delivery, more): ...
