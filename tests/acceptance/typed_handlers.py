"""A user's handlers, for type checkers only: lines that end with `# refused` must be errors, and no others."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, assert_type

import lakelog


@dataclass(frozen=True)
class Order:
    account: str
    total: int


log = lakelog.connect("memory://")
orders = log.topic("orders", Order)
events = log.topic("events")
later = lakelog.connect_async("memory://").topic("orders", Order)
seen: list[Order] = []

# Accepted ------------------------------------------------------------------------------------------------------------


@orders.subscribe(group="a", retries=lakelog.Fixed(max=2), filter=lambda order: order.total > 0)
def plain(order: Order) -> None:
    seen.append(order)


@orders.subscribe(group="b")
async def coroutine(order: Order) -> int:
    return order.total


@orders.subscribe(group="c")
def with_delivery(order: Order, delivery: lakelog.Delivery[Order]) -> None:
    assert_type(delivery.value, Order)
    delivery.ack()


@orders.subscribe(group="d")
async def coroutine_with_delivery(order: Order, delivery: lakelog.AsyncDelivery[Order]) -> None:
    await delivery.ack()


@later.subscribe(group="e")
async def of_async_client(order: Order, delivery: lakelog.AsyncDelivery[Any]) -> None:
    await delivery.extend(5)


@later.subscribe(group="f")
def plain_of_async_client(order: object, delivery: lakelog.Delivery[object]) -> bool:
    return delivery.attempt == 1


@orders.subscribe(group="g")
@functools.lru_cache
def wrapped(order: Order) -> None: ...


def traced(function: Callable[[Order], None]) -> Callable[[Order], None]:
    return function


@orders.subscribe(group="h")
@traced
def wrapped_without_names(order: Order) -> None: ...


@orders.subscribe(group="i")
def with_options(order: Order, *, times: int = 1) -> str:
    return order.account * times


@events.subscribe(group="j")
def of_untyped_topic(event: dict[str, Any]) -> None: ...


@orders.subscribe(group="s", batch=100, batch_wait=0.5)
def of_batch(batch: lakelog.Batch[Order]) -> None:
    assert_type(batch.values, list[Order])
    batch.fail(batch[0], "bad")
    batch[1:].ack()


@orders.subscribe(group="t", batch=100)
async def coroutine_of_batch(batch: lakelog.AsyncBatch[Order]) -> None:
    for message in batch:
        assert_type(message, lakelog.AsyncDelivery[Order])


@later.subscribe(group="u", batch=100)
async def of_batch_of_async_client(batch: lakelog.AsyncBatch[Any]) -> int:
    return len(batch)


class Billing:
    def bill(self, order: Order) -> None: ...

    async def __call__(self, order: Order, delivery: lakelog.AsyncDelivery[Order]) -> None: ...


def tell(delivery: lakelog.Delivery[Order], error: Exception) -> None: ...


async def count(delivery: lakelog.AsyncDelivery[Order]) -> None: ...


orders.subscribe(Billing().bill, group="k", on_dead=tell, on_ack=count)
orders.subscribe(Billing(), group="l", on_dead=lambda delivery, error: None)
orders.subscribe(seen.append, group="m")
orders.subscribe(print, group="n")
orders.subscribe(lambda order: seen.append(order), group="o")
orders.subscribe(lambda order, delivery: delivery.ack(), group="p")
orders.subscribe(functools.partial(with_options, times=2), group="q")
later.subscribe(coroutine_with_delivery, group="r")

# The decorator returns the function with its own type.
assert_type(plain(order=Order("a", 1)), None)
assert_type(with_options(Order("a", 1), times=3), str)


async def called() -> None:
    assert_type(await coroutine(order=Order("a", 1)), int)


# The rest of the API has types too.
assert_type(orders.publish(Order("a", 1)).offset, int)
assert_type(orders.fetch(0).messages[0].value, Order)
assert_type(log.group("a").lag(), int)

# Refused -------------------------------------------------------------------------------------------------------------


@orders.subscribe(group="a")  # refused
def nothing() -> None: ...


@orders.subscribe(group="a")  # refused
def three(order: Order, delivery: lakelog.Delivery[Order], more: int) -> None: ...


@orders.subscribe(group="a")  # refused
def other_value(order: int) -> None: ...


@orders.subscribe(group="a")  # refused
async def other_value_later(order: dict[str, Any]) -> None: ...


@orders.subscribe(group="a")  # refused
def other_value_with_delivery(order: int, delivery: lakelog.Delivery[Order]) -> None: ...


@orders.subscribe(group="a")  # refused
def async_delivery_in_plain(order: Order, delivery: lakelog.AsyncDelivery[Order]) -> None: ...


@orders.subscribe(group="a")  # refused
async def plain_delivery_in_coroutine(order: Order, delivery: lakelog.Delivery[Order]) -> None: ...


@orders.subscribe(group="a", batch=100)  # refused
def other_value_in_batch(batch: lakelog.Batch[int]) -> None: ...


@orders.subscribe(group="a", batch=100)  # refused
async def plain_batch_in_coroutine(batch: lakelog.Batch[Order]) -> None: ...


@orders.subscribe(group="a", batch=100)  # refused
def async_batch_in_plain(batch: lakelog.AsyncBatch[Order]) -> None: ...


@later.subscribe(group="a")  # refused
async def plain_delivery_in_async_client(order: Order, delivery: lakelog.Delivery[Order]) -> None: ...


@orders.subscribe(group="a")  # refused
def delivery_of_other_value(order: Order, delivery: lakelog.Delivery[int]) -> None: ...


@later.subscribe(group="a")  # refused
async def delivery_of_another_kind(order: Order, delivery: str) -> None: ...


orders.subscribe(nothing, group="a")  # refused
orders.subscribe(other_value, group="a")  # refused
orders.subscribe(async_delivery_in_plain, group="a")  # refused
later.subscribe(plain_delivery_in_coroutine, group="a")  # refused
orders.subscribe("plain", group="a")  # refused
orders.subscribe(plain, group="a", on_dead=count)  # refused
orders.subscribe(plain, group="a", on_ack=tell)  # refused
orders.subscribe(plain, group="a", concurrency="8")  # refused
orders.subscribe(plain)  # refused
orders.publish({"account": "a"})  # refused
lakelog.connekt()  # refused
