"""Topics for benchmarks: a new topic per leg, and a topic filled for reading."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

import lakelog
from benchmarks.corpus import PARTITIONS, Corpus
from benchmarks.environment import Served

_names = itertools.count(1)


@contextmanager
def fresh_topic(served: Served) -> Iterator[Any]:
    """Yield an empty topic with its own client, and delete it afterwards."""
    with lakelog.connect(served.url, token=served.token) as log:
        topic = log.topic(f"orders-{next(_names)}")
        topic.create(partitions=PARTITIONS)
        try:
            yield topic
        finally:
            topic.delete()


def produce(topic: Any, corpus: Corpus, messages: int) -> None:
    """Send that many objects one by one through the producer, and wait for the last response."""
    pairs = itertools.islice(itertools.cycle(zip(corpus.keys, corpus.objects, strict=True)), messages)
    with topic.producer() as producer:
        send = producer.send
        for key, order in pairs:
            send(order, key=key)


@contextmanager
def filled_topic(served: Served, corpus: Corpus, messages: int) -> Iterator[Any]:
    """Yield a topic that holds that many messages."""
    with fresh_topic(served) as topic:
        for table in tables(corpus, messages, len(corpus)):
            topic.publish_columns(table.append_column("content_type", pa.repeat("application/json", table.num_rows)))
        yield topic


def tables(corpus: Corpus, messages: int, chunk: int) -> Iterator[pa.Table]:
    """Yield the corpus as columns, in chunks, repeated until there are that many messages."""
    table = corpus.table
    for start in range(0, messages, chunk):
        at = start % table.num_rows
        yield table.slice(at, min(chunk, messages - start))
