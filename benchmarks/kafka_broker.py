"""The Kafka baseline: one broker that flushes every append, and the usual client (librdkafka).

The client gathers large compressed batches, for throughput. Values are encoded within the measured time, as ours are.
"""

from __future__ import annotations

import itertools
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from time import perf_counter

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks import parts
from benchmarks.corpus import PARTITIONS, Corpus
from benchmarks.harness import Measured
from tests.kit.ports import free_port
from tests.kit.process import Process, Supervisor

CONDITIONS = "4.2.0, flush.messages=1, acks=all, idempotent, zstd"
_READY_SECONDS = 90.0
_FLUSH_SECONDS = 60.0
_HEAP = "-Xmx1g"
# Otherwise the client reports the end of the broker.
_QUIET = {"log_level": 0}
_PRODUCER: Mapping[str, str | int | bool] = {
    "enable.idempotence": "true",
    "acks": "all",
    "compression.type": "zstd",
    "compression.level": 1,
    "partitioner": "murmur2_random",
    "linger.ms": 5,
    "batch.size": 1_000_000,
    "batch.num.messages": 10_000,
    "queue.buffering.max.messages": 500_000,
    "queue.buffering.max.kbytes": 512_000,
    # Otherwise the client calls `on_delivery` for each message.
    "delivery.report.only.error": True,
}


class KafkaBroker:
    """A broker that is also the controller, with its own folder; `start` returns a running one."""

    def __init__(self, address: str, process: Process) -> None:
        self.address = address
        self.process = process
        self._names = (f"orders-{number}" for number in itertools.count(1))
        self._admin = AdminClient({"bootstrap.servers": address, **_QUIET})

    @classmethod
    def start(cls, supervisor: Supervisor) -> KafkaBroker:
        folder = Path(tempfile.mkdtemp(prefix="kafka-", dir=supervisor.folder))
        port, controller_port = free_port(), free_port()
        properties = folder / "server.properties"
        settings = _server(folder, port, controller_port)
        properties.write_text("".join(f"{name}={text}\n" for name, text in settings.items()))
        identity = _java("kafka.tools.StorageTool", "random-uuid").strip().splitlines()[-1]
        _java("kafka.tools.StorageTool", "format", "-t", identity, "-c", str(properties))
        argv = ["bash", "-c", 'ulimit -n "$(ulimit -Hn)" && exec "$@"', "kafka"]
        argv += ["java", _HEAP, "-cp", f"{parts.folder(parts.KAFKA)}/*", "kafka.Kafka", str(properties)]
        process = supervisor.start(argv, ready=f"tcp://127.0.0.1:{port}", name="kafka", within=_READY_SECONDS)
        return cls(f"127.0.0.1:{port}", process)

    def create_topic(self) -> str:
        """Create a topic that flushes every append, as a commit of PostgreSQL does. Return its name."""
        topic = NewTopic(next(self._names), PARTITIONS, 1, config={"flush.messages": "1"})
        for created in self._admin.create_topics([topic]).values():
            created.result()
        return topic.topic

    def delete_topic(self, topic: str) -> None:
        for deleted in self._admin.delete_topics([topic]).values():
            deleted.result()

    def messages(self, topic: str) -> int:
        """Return the number of messages that were ever appended to a topic."""
        consumer = Consumer({"bootstrap.servers": self.address, "group.id": "ends", **_QUIET})
        try:
            ends = [consumer.get_watermark_offsets(TopicPartition(topic, number))[1] for number in range(PARTITIONS)]
        finally:
            consumer.close()
        return sum(ends)

    def publish(self, corpus: Corpus, messages: int) -> Measured:
        """Measure the publish of objects into a new topic, one by one, until the last acknowledgement."""
        topic = self.create_topic()
        pairs = itertools.islice(itertools.cycle(zip(corpus.keys, corpus.objects, strict=True)), messages)
        failures: list[KafkaError] = []

        def settled(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failures.append(error)

        producer = Producer({**_PRODUCER, **_QUIET, "bootstrap.servers": self.address, "on_delivery": settled})
        # Connects, as our client does when it creates its topic.
        producer.list_topics(topic)
        start = perf_counter()
        _produce(producer, topic, pairs)
        figure = messages / (perf_counter() - start)
        if failures or len(producer):
            raise KafkaException(failures[0] if failures else f"{len(producer)} messages were not acknowledged")
        self.delete_topic(topic)
        return Measured(figure=figure)


def _produce(producer: Producer, topic: str, pairs: Iterable[tuple[bytes, object]]) -> None:
    produce, encode = producer.produce, msgspec.json.encode
    for key, order in pairs:
        try:
            produce(topic, encode(order), key)
        except BufferError:
            # The client's queue is full.
            producer.poll(0.05)
            produce(topic, encode(order), key)
    producer.flush(_FLUSH_SECONDS)


def _server(folder: Path, port: int, controller_port: int) -> Mapping[str, str | int]:
    return {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(folder / "log"),
        "num.partitions": PARTITIONS,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
        "auto.create.topics.enable": "false",
    }


def _java(*arguments: str) -> str:
    argv = ["java", "-cp", f"{parts.folder(parts.KAFKA)}/*", *arguments]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout
