"""The client under faults: lost responses, cut links, restarting servers, forks, and processes that exit abruptly."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

import lakelog
from lakelog.errors import Closed, NotDurable, OutcomeUnknown, SchemaOutOfDate, Unavailable
from tests.acceptance.client_kit import ThreadServer
from tests.kit.postgres import Cluster
from tests.kit.proxy import FaultProxy
from tests.kit.redriving import bury_one
from tests.kit.size import Size
from tests.kit.waiting import eventually, eventually_async


@pytest.fixture
def proxy(http_server: ThreadServer) -> Iterator[FaultProxy]:
    with FaultProxy("127.0.0.1", http_server.port) as proxy:
        yield proxy


def url_of(proxy: FaultProxy) -> str:
    return f"http://127.0.0.1:{proxy.port}"


def in_order(topic: lakelog.Topic[object]) -> list[int]:
    """Return all numbers in the topic, after checking that those of each key are in order."""
    seen: dict[bytes | None, list[int]] = {}
    for message in topic.read():
        seen.setdefault(message.key, []).append(int(message.raw or b""))
    assert all(numbers == sorted(numbers) for numbers in seen.values())
    return sorted(itertools.chain(*seen.values()))


def test_single_publishes_are_written_once_although_answers_are_lost(
    http_server: ThreadServer, proxy: FaultProxy, size: Size
) -> None:
    count = size.pick(ci=300, full=3_000)
    with lakelog.connect(url_of(proxy)) as log:
        topic = log.topic("t")
        topic.create(4)
        proxy.drop_answers(probability=0.3, matching=b"/messages")
        receipts = [topic.publish(b"%d" % n, key=n % 5) for n in range(count)]
        proxy.pass_through()
        assert proxy.dropped > count // 10
        assert len({receipt.id for receipt in receipts}) == count
        assert in_order(topic) == list(range(count))
        found = {message.id: int(message.raw or b"") for message in topic.read()}
        assert [found[receipt.id] for receipt in receipts] == list(range(count))


async def test_publishes_at_once_are_written_once_although_answers_are_lost(
    http_server: ThreadServer, proxy: FaultProxy
) -> None:
    async with lakelog.connect_async(url_of(proxy)) as log:
        topic = log.topic("t")
        await topic.create(4)
        proxy.drop_answers(probability=0.3, matching=b"/messages")
        receipts = await asyncio.gather(*(topic.publish(n) for n in range(300)))
        proxy.pass_through()
        assert proxy.dropped > 30
        assert len({receipt.id for receipt in receipts}) == 300
        assert sorted([message.value async for message in topic.read()]) == list(range(300))


def test_a_producer_publishes_once_although_answers_are_lost(
    http_server: ThreadServer, proxy: FaultProxy, size: Size
) -> None:
    count = size.pick(ci=10_000, full=200_000)
    with lakelog.connect(url_of(proxy)) as log:
        topic = log.topic("t")
        topic.create(4)
        proxy.drop_answers(probability=0.4, matching=b"/messages")
        with topic.producer(max_batch=200) as producer:
            for n in range(count):
                producer.send(b"%d" % n, key=b"%d" % (n % 17))
        proxy.pass_through()
        assert proxy.dropped > count // 200 // 5
        assert in_order(topic) == list(range(count))


def test_a_redrive_whose_answer_is_lost_is_unknown_and_may_be_repeated(
    http_server: ThreadServer, proxy: FaultProxy
) -> None:
    with lakelog.connect(url_of(proxy)) as log:
        topic = log.topic("t")
        topic.create()
        topic.publish_many([1, 2])
        for is_repeated in (False, True):
            bury_one(log, "t", "g")
            dead = topic.dead_letters("g")
            (letter,) = dead.list()
            proxy.drop_answers(1, matching=b"/redrive")
            with pytest.raises(OutcomeUnknown) as caught:
                dead.redrive_these([letter.id], repeat=is_repeated)
            assert ("the retry failed" in caught.value.detail) is is_repeated
            assert dead.list() == []
        assert [message.value for message in topic.fetch().messages] == [1, 2, 1, 2]


def test_a_producer_outlives_a_cut_link(http_server: ThreadServer, proxy: FaultProxy) -> None:
    with lakelog.connect(url_of(proxy)) as log:
        topic = log.topic("t")
        topic.create(4)
        with topic.producer(max_batch=100) as producer:
            for n in range(4_000):
                if n % 1_000 == 500:
                    proxy.cut_off()
                if n % 1_000 == 700:
                    # The producer has met the cut link before it is repaired.
                    eventually(lambda: producer.buffered > 0)
                    proxy.pass_through()
                producer.send(b"%d" % n, key=b"%d" % (n % 17))
        assert proxy.cut > 0
        assert in_order(topic) == list(range(4_000))


def test_a_producer_outlives_its_server(http_server: ThreadServer) -> None:
    with lakelog.connect(http_server.url) as log:
        topic = log.topic("t")
        topic.create(4)
        with topic.producer(max_batch=100) as producer:
            for n in range(3_000):
                if n in (700, 1_900):
                    http_server.stop()
                    producer.send(b"%d" % n, key=b"down")
                    http_server.start()
                else:
                    producer.send(b"%d" % n, key=b"%d" % (n % 17))
        assert in_order(topic) == list(range(3_000))


def test_the_client_uses_another_server_when_one_is_gone(http_server: ThreadServer, proxy: FaultProxy) -> None:
    with lakelog.connect(f"{url_of(proxy)},127.0.0.1:{http_server.port}") as log:
        topic = log.topic("t")
        topic.create()
        topic.publish("through the proxy")
        assert proxy.connections == 1
        proxy.cut_off()
        topic.publish("past it")
        assert [message.value for message in topic.read()] == ["through the proxy", "past it"]


def test_a_half_open_link_times_out(http_server: ThreadServer, proxy: FaultProxy) -> None:
    with lakelog.connect(http_server.url) as log:
        log.topic("t").create()
    with lakelog.connect(url_of(proxy), timeout=0.5) as log:
        topic = log.topic("t")

        def is_known() -> bool:
            # On a busy machine, the time may be too short for a working link, too.
            with contextlib.suppress(OutcomeUnknown, Unavailable):
                return bool(topic.publish("known"))
            return False

        eventually(is_known)
        proxy.half_open()
        with pytest.raises(OutcomeUnknown):
            topic.publish("unknown")
        with pytest.raises(Unavailable):
            topic.fetch()
        assert proxy.swallowed > 0


def test_a_full_buffer_blocks_until_the_server_is_back(http_server: ThreadServer, proxy: FaultProxy) -> None:
    with lakelog.connect(url_of(proxy)) as log:
        topic = log.topic("t")
        topic.create()
        with topic.producer(max_buffer_bytes=50_000, max_batch=50) as producer:
            proxy.cut_off()
            sent = threading.Event()

            def send_all() -> None:
                for n in range(2_000):
                    producer.send(b"%d" % n, key=b"k")
                sent.set()

            thread = threading.Thread(target=send_all)
            thread.start()
            eventually(lambda: producer.buffered > 300)
            most = producer.buffered
            assert not sent.wait(0.2)
            assert producer.buffered <= 50_000 // 100
            proxy.pass_through()
            thread.join(30)
            assert sent.is_set()
            assert most <= 50_000 // 100
        assert in_order(topic) == list(range(2_000))


def test_threads_share_a_producer_and_a_client(http_server: ThreadServer) -> None:
    with lakelog.connect(http_server.url) as log:
        topic = log.topic("t")
        topic.create(4)
        with topic.producer(max_batch=300) as producer:

            def work(worker: int) -> None:
                for n in range(1_000):
                    producer.send(b"%d" % (worker * 10_000 + n), key=b"%d" % worker)
                topic.publish(b"%d" % (worker * 10_000 + 5_000), key=b"single-%d" % worker)

            threads = [threading.Thread(target=work, args=[worker]) for worker in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
        wanted = [worker * 10_000 + n for worker in range(8) for n in [*range(1_000), 5_000]]
        assert in_order(topic) == sorted(wanted)


def forked(work: object) -> int:
    """Run the work in a forked child, and return its exit code."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()  # type: ignore[operator]
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_forked_child_sends_nothing_of_its_parent(http_server: ThreadServer) -> None:
    with lakelog.connect(http_server.url) as log:
        topic = log.topic("t")
        topic.create()
        producer = topic.producer(linger=3600)
        topic.publish(b"1")
        producer.send(b"2")
        parent_lane, parent_single = producer._session.producer, topic._state.sessions.take()
        topic._state.sessions.give(parent_single)

        def child() -> None:
            assert producer.buffered == 0
            assert producer._session.producer != parent_lane
            producer.send(b"10")
            producer.flush()
            topic.publish(b"11")
            assert topic._state.sessions.take().producer != parent_single.producer
            producer.close()

        assert forked(child) == 0
        assert producer.buffered == 1
        producer.close()
        topic.publish(b"3")
        assert sorted(int(message.raw or b"") for message in topic.read()) == [1, 2, 3, 10, 11]


def test_a_forked_child_needs_an_embedded_client_of_its_own(migrated_database: str) -> None:
    with lakelog.connect(migrated_database) as log:
        topic = log.topic("t")
        topic.create()
        topic.publish("parent")

        def child() -> None:
            with pytest.raises(Closed, match="fork"):
                topic.publish("lost")
            with lakelog.connect(migrated_database) as own:
                own.topic("t").publish("child")

        assert forked(child) == 0
        topic.publish("parent")
        assert [message.value for message in topic.read()] == ["parent", "child", "parent"]


FORGETFUL = """
import sys, lakelog
log = lakelog.connect(sys.argv[1])
producer = log.topic("t").producer(linger=float(sys.argv[2]))
for n in range(5000):
    producer.send(b"%d" % n, key=b"k")
"""


def forget_to_close(url: str, *, linger: float = 3600.0, end: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", FORGETFUL + end, url, str(linger)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("end", ["", "raise ValueError('x')", "sys.exit(3)"])
def test_a_process_that_forgets_to_close_publishes_at_its_end(http_server: ThreadServer, end: str) -> None:
    with lakelog.connect(http_server.url) as log:
        topic = log.topic("t")
        topic.create(2)
        done = forget_to_close(http_server.url, end=end)
        assert "NOT published" not in done.stderr
        assert in_order(topic) == list(range(5_000))


def test_a_process_that_forgets_to_close_an_embedded_client(migrated_database: str) -> None:
    with lakelog.connect(migrated_database) as log:
        topic = log.topic("t")
        topic.create(2)
        done = forget_to_close(migrated_database)
        assert (done.returncode, done.stderr) == (0, "")
        assert in_order(topic) == list(range(5_000))


@pytest.mark.nightly
def test_messages_that_cannot_be_published_at_exit_are_reported(http_server: ThreadServer, proxy: FaultProxy) -> None:
    with lakelog.connect(http_server.url) as log:
        topic = log.topic("t")
        topic.create(2)
        end = "lakelog.client._sync.producer._AT_EXIT_SECONDS = 1.0; print('cut', flush=True); input()"
        command = [sys.executable, "-c", FORGETFUL + end, url_of(proxy), "3600"]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "cut\n"
            proxy.cut_off()
            _, told = process.communicate("\n", timeout=60)
        assert "topic t: 5000 messages were NOT published" in told
        assert in_order(topic) == []


async def test_cancelling_a_publish_leaves_the_client_whole(http_server: ThreadServer, proxy: FaultProxy) -> None:
    async with lakelog.connect_async(url_of(proxy)) as log:
        topic = log.topic("t")
        await topic.create()
        await topic.publish("a")
        proxy.half_open()
        call = asyncio.create_task(topic.publish("b"))
        await eventually_async(lambda: proxy.swallowed > 0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        proxy.pass_through()
        await topic.publish("c")
        values = [message.value async for message in topic.read()]
        assert values in (["a", "c"], ["a", "b", "c"])


async def test_an_async_embedded_client_survives_cancelled_calls(migrated_database: str) -> None:
    async with lakelog.connect_async(migrated_database) as log:
        topic = log.topic("t")
        await topic.create()
        for n in range(60):
            call = asyncio.create_task(topic.publish(n))
            # Each time a few steps later, so that it is cancelled at every point.
            for _ in range(n):
                await asyncio.sleep(0)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
        receipts = [await topic.publish(n) for n in range(100, 110)]
        values = [message.value async for message in topic.read()]
        assert len(values) == len(set(values))
        assert values[-10:] == list(range(100, 110))
        assert [receipt.offset for receipt in receipts] == list(range(len(values) - 10, len(values)))


def test_a_database_without_the_schema_says_what_to_do(database: str) -> None:
    with pytest.raises(SchemaOutOfDate, match="lakelog migrate"), lakelog.connect(database):
        pass


def test_a_database_that_could_lose_messages_is_refused(cluster: Cluster, migrated_database: str) -> None:
    name = migrated_database.rpartition("/")[2]
    cluster.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = off')  # type: ignore[arg-type]
    with pytest.raises(NotDurable, match="synchronous_commit"), lakelog.connect(migrated_database):
        pass
    with lakelog.connect(migrated_database, allow_not_durable=True) as log:
        log.topic("t").create()
        assert log.topic("t").publish("x").offset == 0


def test_a_missing_database_is_unavailable() -> None:
    before = time.monotonic()
    with pytest.raises(Unavailable), lakelog.connect("postgresql://x@127.0.0.1:1/x", timeout=0.5):
        pass
    assert time.monotonic() - before < 10
