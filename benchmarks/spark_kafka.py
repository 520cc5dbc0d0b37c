"""Spark's connector for Kafka, a peer of the Spark benchmarks: topics of a broker as DataFrames."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from benchmarks import parts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from benchmarks.kafka_broker import KafkaBroker

_WRITE: Mapping[str, str] = {"kafka.acks": "all", "kafka.compression.type": "zstd", "kafka.compression.zstd.level": "1"}


def session_settings() -> Mapping[str, str]:
    """Return the settings of a session that has the connector."""
    return {"spark.jars": ",".join(str(jar) for jar in sorted(parts.folder(parts.KAFKA_CONNECTOR).glob("*.jar")))}


def read(spark: SparkSession, broker: KafkaBroker, topic: str) -> DataFrame:
    """Return all messages of a topic, with their headers."""
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", broker.address)
    return reader.options(subscribe=topic, includeHeaders="true").load()


def write(frame: DataFrame, broker: KafkaBroker, topic: str) -> None:
    """Write keys and values; return when all are acknowledged."""
    writer = frame.select("key", "value").write.format("kafka").options(**_WRITE)
    writer.option("kafka.bootstrap.servers", broker.address).option("topic", topic).save()
