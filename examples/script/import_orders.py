"""Publish the lines of a CSV file with the columns id, account and total.

import-orders FILE
"""

import csv
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import lakelog

BATCH = 1000


def messages(lines: Iterable[str]) -> Iterator[lakelog.Outgoing[dict[str, str | int]]]:
    """Yield a message for each line. A line with a total that is no number raises `ValueError`."""
    for row in csv.DictReader(lines):
        value = {"id": row["id"], "account": row["account"], "total": int(row["total"])}
        yield lakelog.Outgoing(value, key=row["account"], idempotency_key=row["id"])


def publish(log: lakelog.Lakelog, lines: Iterable[str]) -> int:
    """Publish the lines. Return how many there are."""
    orders = log.topic("orders")
    orders.create(partitions=4, if_missing=True)
    count = 0
    found = messages(lines)
    while batch := list(islice(found, BATCH)):
        count += len(orders.publish_many(batch))
    return count


def main() -> None:
    with lakelog.connect() as log, Path(sys.argv[1]).open(newline="") as lines:
        print(f"{publish(log, lines)} orders are published")
