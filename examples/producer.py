"""Publish many messages in the background: batched, with bounded memory, without duplicates or silent losses.

python examples/producer.py [COUNT]
"""

import os
import sys
from collections.abc import Sequence

import lakelog

count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000


def report(error: lakelog.LakelogError, messages: Sequence[lakelog.Message]) -> None:
    print(f"{len(messages)} messages were not published: {error}", file=sys.stderr)


with lakelog.connect(os.environ.get("LAKELOG_URL", "memory://example")) as log:
    readings = log.topic("example-readings")
    readings.create(partitions=4, if_missing=True)

    with readings.producer(on_error=report) as producer:
        for number in range(count):
            producer.send({"sensor": number % 100, "value": number}, key=f"sensor_{number % 100}")
        producer.flush()  # returns when all of them are durable

    info = readings.describe()
    stored = sum(one.high_watermark - one.log_start for one in info.partition_list)
    print(f"published {count}, the topic has {stored} in {info.partitions} partitions")
