"""Publish a few messages and read them back. It runs in memory, or with LAKELOG_URL on a server or a database.

python examples/publish_and_read.py
"""

import os
from dataclasses import dataclass

import lakelog


@dataclass
class Order:
    account: str
    total: int


with lakelog.connect(os.environ.get("LAKELOG_URL", "memory://example")) as log:
    orders = log.topic("example-orders", type=Order)
    orders.create(partitions=4, key_field="account", if_missing=True)

    receipt = orders.publish(Order("acct_1", 12), idempotency_key="example-order-1")
    again = orders.publish(Order("acct_1", 12), idempotency_key="example-order-1")
    assert again.id == receipt.id and again.duplicate, "a repeat is recognised"

    orders.publish_many([Order("acct_2", 7), Order("acct_1", 30)])

    for message in orders.read():
        print(f"{message.partition}:{message.offset} {message.key_text} {message.value}")
