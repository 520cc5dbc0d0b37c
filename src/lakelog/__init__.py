"""Lakelog: durable topics on PostgreSQL for Python workers and Spark.

The names that users import. Each is loaded when it is first used, so importing this module is cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakelog import errors as errors
    from lakelog.client._async.consumer import AsyncConsumer
    from lakelog.client._async.delivery import AsyncDelivery
    from lakelog.client._async.lakelog import AsyncLakelog
    from lakelog.client._async.message_batch import AsyncArrowBatch, AsyncBatch
    from lakelog.client._async.producer import AsyncProducer
    from lakelog.client._async.topic import AsyncTopic
    from lakelog.client._sync.consumer import Consumer
    from lakelog.client._sync.delivery import Delivery
    from lakelog.client._sync.lakelog import Lakelog
    from lakelog.client._sync.message_batch import ArrowBatch, Batch
    from lakelog.client._sync.producer import Producer
    from lakelog.client._sync.topic import Topic
    from lakelog.client.connecting.connect import connect, connect_async
    from lakelog.client.connecting.read_arrow import read_arrow
    from lakelog.client.reading.messages import ReceivedMessage
    from lakelog.client.values import FetchResult, Outgoing, ReplayProgress, Run
    from lakelog.client.worker.defaults import Defaults
    from lakelog.errors import LakelogError
    from lakelog.model.group import Exponential, Fixed, Order
    from lakelog.model.message import Message
    from lakelog.model.position import Receipt, ScheduledReceipt
    from lakelog.model.scheduled import ScheduledMessage
    from lakelog.model.topic import Retention
    from lakelog.model.topic_info import PartitionInfo, Purged, TopicInfo

__all__ = [
    "ArrowBatch",
    "AsyncArrowBatch",
    "AsyncBatch",
    "AsyncConsumer",
    "AsyncDelivery",
    "AsyncLakelog",
    "AsyncProducer",
    "AsyncTopic",
    "Batch",
    "Consumer",
    "Defaults",
    "Delivery",
    "Exponential",
    "FetchResult",
    "Fixed",
    "Lakelog",
    "LakelogError",
    "Message",
    "Order",
    "Outgoing",
    "PartitionInfo",
    "Producer",
    "Purged",
    "Receipt",
    "ReceivedMessage",
    "ReplayProgress",
    "Retention",
    "Run",
    "ScheduledMessage",
    "ScheduledReceipt",
    "Topic",
    "TopicInfo",
    "connect",
    "connect_async",
    "errors",
    "read_arrow",
]

_HOMES = {
    "AsyncArrowBatch": "lakelog.client._async.message_batch",
    "AsyncBatch": "lakelog.client._async.message_batch",
    "AsyncConsumer": "lakelog.client._async.consumer",
    "AsyncDelivery": "lakelog.client._async.delivery",
    "AsyncLakelog": "lakelog.client._async.lakelog",
    "AsyncProducer": "lakelog.client._async.producer",
    "AsyncTopic": "lakelog.client._async.topic",
    "ArrowBatch": "lakelog.client._sync.message_batch",
    "Batch": "lakelog.client._sync.message_batch",
    "Consumer": "lakelog.client._sync.consumer",
    "Defaults": "lakelog.client.worker.defaults",
    "Delivery": "lakelog.client._sync.delivery",
    "Exponential": "lakelog.model.group",
    "FetchResult": "lakelog.client.values",
    "Fixed": "lakelog.model.group",
    "Lakelog": "lakelog.client._sync.lakelog",
    "LakelogError": "lakelog.errors",
    "Message": "lakelog.model.message",
    "Order": "lakelog.model.group",
    "Outgoing": "lakelog.client.values",
    "PartitionInfo": "lakelog.model.topic_info",
    "Producer": "lakelog.client._sync.producer",
    "Purged": "lakelog.model.topic_info",
    "ReceivedMessage": "lakelog.client.reading.messages",
    "Receipt": "lakelog.model.position",
    "ReplayProgress": "lakelog.client.values",
    "Retention": "lakelog.model.topic",
    "Run": "lakelog.client.values",
    "ScheduledMessage": "lakelog.model.scheduled",
    "ScheduledReceipt": "lakelog.model.position",
    "Topic": "lakelog.client._sync.topic",
    "TopicInfo": "lakelog.model.topic_info",
    "connect": "lakelog.client.connecting.connect",
    "connect_async": "lakelog.client.connecting.connect",
    "read_arrow": "lakelog.client.connecting.read_arrow",
}


# Hidden from type checkers: if they see this function, they accept any attribute name.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name == "errors":
            return import_module("lakelog.errors")
        if name not in _HOMES:
            raise AttributeError(f"module 'lakelog' has no attribute {name!r}")
        found = getattr(import_module(_HOMES[name]), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return __all__
