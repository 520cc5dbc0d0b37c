"""Handlers with `subscribe`: values, answers, retries, dead letters, order, shutdown; over each transport."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

import lakelog
from lakelog.errors import GroupSettingsDiffer, InvalidRequest, LeaseLost, NoPosition, TopicNotFound
from tests.acceptance.client_kit import ThreadServer
from tests.kit.size import Size
from tests.kit.waiting import eventually, eventually_async

FAST = lakelog.Fixed(max=2, seconds=0.02)


@dataclass
class Order:
    account: str
    total: int


@pytest.fixture
def log(url: str) -> Iterator[lakelog.Lakelog]:
    with lakelog.connect(url) as log:
        yield log


@pytest.fixture
def memory() -> Iterator[lakelog.Lakelog]:
    with lakelog.connect("memory://") as log:
        yield log


def made(log: lakelog.Lakelog, partitions: int = 2, **options: Any) -> lakelog.Topic[Any]:
    topic = log.topic("work", **options)
    topic.create(partitions=partitions)
    return topic


def finished(log: lakelog.Lakelog, group: str = "g") -> None:
    eventually(lambda: log.group(group).lag() == 0, within=30, what="everything is finished")


def test_plain_and_coroutine_handlers_get_each_message_once(log: lakelog.Lakelog) -> None:
    """Two groups that both receive everything; values have the topic's type."""
    topic = made(log, type=Order)
    plain: list[Order] = []
    coroutine: list[tuple[Order, str]] = []

    @topic.subscribe(group="plain", concurrency=4, start_from="earliest")
    def handle(order: Order) -> None:
        assert threading.current_thread() is not threading.main_thread()
        plain.append(order)

    @topic.subscribe(group="coroutine", concurrency=4, start_from="earliest")
    async def handle_async(order: Order, delivery: lakelog.AsyncDelivery[Order]) -> None:
        await asyncio.sleep(0)
        coroutine.append((order, delivery.id))

    orders = [Order(f"a{n % 7}", n) for n in range(60)]
    receipts = topic.publish_many([lakelog.Outgoing(order, key=order.account) for order in orders])
    log.start()
    finished(log, "plain")
    finished(log, "coroutine")
    log.stop()
    assert sorted(order.total for order in plain) == list(range(60))
    assert {identity for _, identity in coroutine} == {receipt.id for receipt in receipts} and len(coroutine) == 60
    assert log.counts["work/plain"].acked == 60 and log.counts["work/plain"].released == 0


def test_a_delivery_says_what_it_is(memory: lakelog.Lakelog) -> None:
    topic = made(memory, 1)
    seen: list[lakelog.Delivery[Any]] = []

    @topic.subscribe(group="g", start_from="earliest", retries=FAST)
    def handle(value: Any, delivery: lakelog.Delivery[Any]) -> None:
        seen.append(delivery)
        if len(seen) < 3:
            raise RuntimeError("not yet")

    receipt = topic.publish({"a": 1}, key="k", headers={"h": "x"}, correlation_id="c")
    memory.start()
    finished(memory)
    memory.stop()
    last = seen[-1]
    assert (last.id, last.topic, last.partition, last.offset) == (receipt.id, "work", 0, 0)
    assert (last.key, last.headers, last.correlation_id, last.value) == (b"k", {"h": "x"}, "c", {"a": 1})
    assert [(each.attempt, each.failures) for each in seen] == [(1, 0), (2, 1), (3, 2)]
    assert last.appended_at.tzinfo is not None and receipt.id in repr(last)


def test_a_message_that_fails_too_often_is_a_dead_letter_and_can_be_redriven(log: lakelog.Lakelog) -> None:
    """S12: after its retries, once; the reason is the exception's; other messages are not delayed."""
    topic = made(log)
    attempts: Counter[str] = Counter()
    dead: list[tuple[str, str]] = []
    broken = True

    def on_dead(delivery: lakelog.Delivery[str], error: BaseException) -> None:
        dead.append((delivery.value, repr(error)))

    @topic.subscribe(group="g", concurrency=4, start_from="earliest", retries=FAST, on_dead=on_dead)
    def handle(value: str) -> None:
        attempts[value] += 1
        if value == "bad" and broken:
            raise ValueError("a timeout, says the bank")

    for value in ("a", "bad", "b"):
        topic.publish(value, key=value)
    log.start()
    finished(log)
    eventually(lambda: dead, what="the hook was called")
    assert attempts == {"a": 1, "bad": 3, "b": 1} and dead == [("bad", "ValueError('a timeout, says the bank')")]
    letters = topic.dead_letters("g")
    (letter,) = letters.list()
    assert (letter.error, letter.failures, letter.raw, letter.state) == (
        "ValueError: a timeout, says the bank",
        3,
        b"bad",
        "dead",
    )
    assert letters.find(letter.id).id == letter.id
    assert letters.where(error="it's nothing").list() == [] == letters.where("key = 'a'").list()
    assert letters.where(error="timeout").where(key="bad").redrive(dry_run=True).redriven == 1
    broken = False
    shown: list[int] = []
    done = letters.where(error="timeout").redrive(rate=100, progress=lambda so_far: shown.append(so_far.redriven))
    assert done.redriven == 1 and shown == [1]
    eventually(lambda: attempts["bad"] == 4, what="it is tried once more")
    finished(log)
    assert letters.list() == [] and log.counts["work/g"].dead == 1


def test_an_answer_of_the_handler_counts(log: lakelog.Lakelog) -> None:
    """ack, nack with a delay and a reason, fail and discard, in automatic mode; a later exception has no effect."""
    topic = made(log, 1)
    seen: defaultdict[str, list[float]] = defaultdict(list)

    @topic.subscribe(group="g", concurrency=4, start_from="earliest", retries=FAST)
    def handle(value: str, delivery: lakelog.Delivery[str]) -> None:
        seen[value].append(time.monotonic())
        if value == "ack":
            delivery.ack()
            delivery.ack()
            raise RuntimeError("too late to matter")
        if value == "nack" and delivery.attempt == 1:
            delivery.nack(delay=timedelta(seconds=0.5), reason="later")
        if value == "fail":
            delivery.fail("hopeless")
            with pytest.raises(InvalidRequest, match="already"):
                delivery.ack()
        if value == "discard":
            delivery.discard(reason="not wanted")

    for value in ("ack", "nack", "fail", "discard"):
        topic.publish(value)
    log.start()
    finished(log)
    log.stop()
    assert {value: len(times) for value, times in seen.items()} == {"ack": 1, "nack": 2, "fail": 1, "discard": 1}
    assert seen["nack"][1] - seen["nack"][0] >= 0.5
    assert [(letter.raw, letter.error) for letter in topic.dead_letters("g")] == [(b"fail", "hopeless")]
    (progress,) = log.group("g").progress()
    assert (progress.acked, progress.dead, progress.discarded) == (2, 1, 1)


def test_manual_acks(memory: lakelog.Lakelog) -> None:
    """A handler that returns without an answer has failed."""
    topic = made(memory, 1)
    acked: list[str] = []

    def on_ack(delivery: lakelog.Delivery[str]) -> None:
        acked.append(delivery.value)

    @topic.subscribe(group="g", ack="manual", concurrency=2, start_from="earliest", retries=FAST, on_ack=on_ack)
    async def handle(value: str, delivery: lakelog.AsyncDelivery[str]) -> None:
        if value == "good":
            await delivery.ack()

    topic.publish_many(["good", "forgotten"])
    memory.start()
    finished(memory)
    memory.stop()
    assert acked == ["good"]
    assert [(x.raw, x.error) for x in topic.dead_letters("g")] == [
        (
            b"forgotten",
            "The handler returned without an answer. With ack='manual' it must call ack, nack, fail or discard.",
        )
    ]


def test_filters(log: lakelog.Lakelog) -> None:
    """A filter expression belongs to the group, on the server; a function runs here, and excluded messages are acked as
    skipped.
    """
    topic = made(log, 1)
    by_text: list[int] = []
    by_function: list[int] = []
    topic.subscribe(
        lambda v: by_text.append(v["n"]), group="text", filter="headers.kind = 'odd'", start_from="earliest"
    )
    topic.subscribe(
        lambda v: by_function.append(v["n"]), group="function", filter=lambda v: v["n"] > 5, start_from="earliest"
    )
    for n in range(10):
        topic.publish({"n": n}, headers={"kind": "odd" if n % 2 else "even"})
    log.start()
    finished(log, "text")
    finished(log, "function")
    log.stop()
    assert by_text == [1, 3, 5, 7, 9] and by_function == [6, 7, 8, 9]
    assert log.counts["work/function"].skipped == 6
    (progress,) = log.group("text").progress()
    assert (progress.acked, progress.filtered) == (5, 5)


def test_a_value_that_cannot_be_decoded_fails_for_good(memory: lakelog.Lakelog) -> None:
    raw = memory.topic("work")
    raw.create()
    raw.publish(b"{not json", key="k")
    raw.publish(b'{"account": "a", "total": 1}', key="k")
    seen: list[Order] = []
    topic = memory.topic("work", type=Order)
    topic.subscribe(seen.append, group="g", start_from="earliest")
    memory.start()
    finished(memory)
    memory.stop()
    (letter,) = topic.dead_letters("g")
    assert letter.raw == b"{not json" and "not valid as Order" in letter.error and letter.deliveries == 1
    assert seen == [Order("a", 1)]


@pytest.mark.parametrize("options", [{"concurrency": 8, "max_in_flight": 40}, {"concurrency": 4, "prefetch": 30}, {}])
def test_messages_of_a_key_run_in_order_and_others_beside_them(log: lakelog.Lakelog, options: dict[str, int]) -> None:
    """S15: even if one fails, later ones of its key wait, and those of others do not."""
    topic = made(log, 3)
    running: Counter[bytes] = Counter()
    most = 0
    ended: defaultdict[bytes, list[int]] = defaultdict(list)
    failed: set[int] = set()

    @topic.subscribe(group="g", start_from="earliest", retries=FAST, **options)
    async def handle(value: int, delivery: lakelog.AsyncDelivery[int]) -> None:
        nonlocal most
        assert delivery.key is not None
        running[delivery.key] += 1
        most = max(most, sum(running.values()))
        assert running[delivery.key] == 1, "one at a time of a key"
        await asyncio.sleep(0.002)
        running[delivery.key] -= 1
        if value % 10 == 3 and value not in failed:
            failed.add(value)
            raise RuntimeError("the first time")
        ended[delivery.key].append(value)

    for n in range(120):
        topic.publish(n, key=f"k{n % 6}")
    log.start()
    finished(log)
    log.stop()
    assert {key: list(values) for key, values in ended.items()} == {
        f"k{k}".encode(): list(range(k, 120, 6)) for k in range(6)
    }
    assert most <= options.get("concurrency", 1) and (most > 1 or not options)
    assert len(failed) == 12 and log.counts["work/g"].lost == 0


def test_a_handler_that_takes_too_long_has_failed(log: lakelog.Lakelog) -> None:
    """A coroutine is cancelled; the late result of a thread is ignored, and does not delay others."""
    topic = made(log, 1)
    cancelled: list[str] = []
    late = threading.Event()
    late_error: list[BaseException] = []
    quick: list[str] = []

    @topic.subscribe(group="coroutine", ack_timeout=1, retries=0, start_from="earliest")
    async def slow_async(value: str) -> None:
        try:
            await asyncio.sleep(60 if value == "slow" else 0)
        except asyncio.CancelledError:
            cancelled.append(value)
            raise

    @topic.subscribe(group="thread", ack_timeout=1, retries=0, start_from="earliest")
    def slow(value: str, delivery: lakelog.Delivery[str]) -> None:
        if value == "quick":
            quick.append(value)
            return
        late.wait(30)
        try:
            delivery.ack()
        except Exception as error:
            late_error.append(error)

    topic.publish_many(["slow", "quick"])
    log.start()
    finished(log, "coroutine")
    finished(log, "thread")
    late.set()
    eventually(lambda: late_error, what="the late ack was refused")
    log.stop()
    assert cancelled == ["slow"] and quick == ["quick"]
    assert isinstance(late_error[0], InvalidRequest | LeaseLost)
    for group in ("coroutine", "thread"):
        (letter,) = topic.dead_letters(group).where(error="timeout")
        assert letter.raw == b"slow" and log.counts[f"work/{group}"].timed_out == 1


def test_extend_gives_a_handler_more_time(log: lakelog.Lakelog) -> None:
    topic = made(log, 1)
    extended: list[str] = []

    # On a busy machine, the time may be over before the server has answered the extension.
    @topic.subscribe(group="g", ack_timeout=0.3, retries=lakelog.Fixed(max=50, seconds=0), start_from="earliest")
    async def handle(value: str, delivery: lakelog.AsyncDelivery[str]) -> None:
        await delivery.extend(30)
        extended.append(value)
        await asyncio.sleep(0.6)

    topic.publish("x")
    log.start()
    finished(log)
    log.stop()
    assert log.counts["work/g"].acked == 1 and topic.dead_letters("g").list() == []
    assert extended == ["x"]


def test_start_from(memory: lakelog.Lakelog) -> None:
    topic = made(memory, 1)
    receipts = topic.publish_many([f"m{n}" for n in range(5)])
    seen: defaultdict[str, list[str]] = defaultdict(list)
    for group, start in {"latest": "latest", "earliest": "earliest", "offset": 3, "none": "none"}.items():
        topic.subscribe(seen[group].append, group=group, start_from=start)  # type: ignore[arg-type]
    with pytest.raises(NoPosition, match="groups seek none work"):
        memory.start()
    assert [each.after for each in topic.seek("none", message_id=receipts[4].id, dry_run=True)] == [4]
    topic.seek("none", message_id=receipts[4].id)
    memory.start()
    topic.publish("new")
    for group in seen:
        finished(memory, group)
    assert seen["earliest"] == ["m0", "m1", "m2", "m3", "m4", "new"]
    assert (seen["latest"], seen["offset"], seen["none"]) == (["new"], ["m3", "m4", "new"], ["m4", "new"])
    topic.seek("earliest", offset=4)
    eventually(lambda: seen["earliest"][6:] == ["m4", "new"], what="read again")


def test_pause_and_resume(log: lakelog.Lakelog) -> None:
    topic = made(log, 1)
    seen: list[str] = []
    topic.subscribe(seen.append, group="g")
    log.start()
    topic.pause("g")
    topic.publish("x")
    assert topic.lag("g") == 1 and log.group("g").describe().group.paused == ("work",)
    topic.resume()
    eventually(lambda: seen == ["x"], within=20, what="it goes on")
    log.group("g").pause()
    assert "paused" in str(log.group("g").describe())
    log.group("g").resume()
    finished(log)
    stats = topic.stats()
    assert stats.messages == 1 and [(each.group, each.lag) for each in stats.groups] == [("g", 0)]
    log.stop()
    assert [group.name for group in log.groups()] == ["g"]
    assert log.group("g").alter(retries=7, order="none").settings.order is lakelog.Order.NONE
    log.group("g").delete()
    assert log.groups() == []


@pytest.mark.parametrize("options", [{"max_in_flight": 10}, {"prefetch": 9}])
def test_shutdown_finishes_running_handlers_and_releases_other_messages(
    log: lakelog.Lakelog, url: str, options: dict[str, int]
) -> None:
    """Messages whose handler has not started are released immediately, and have not failed."""
    topic = made(log, 1)
    begun, go_on = threading.Event(), threading.Event()
    seen: list[int] = []

    @topic.subscribe(group="g", start_from="earliest", **options)
    def handle(value: int) -> None:
        begun.set()
        go_on.wait(20)
        seen.append(value)

    topic.publish_many(list(range(10)))
    log.start()
    assert begun.wait(20)
    stopping = threading.Thread(target=log.stop)
    stopping.start()
    eventually(lambda: log.group("g").describe().progress[0].leased == 1, what="nine were given back")
    go_on.set()
    stopping.join(20)
    assert not stopping.is_alive() and seen == [0] and log.counts["work/g"].released == 9
    assert log.group("g").describe().members == ()
    with lakelog.connect(url) as other:
        rest: list[tuple[int, int]] = []
        other.topic("work").subscribe(lambda v, d: rest.append((v, d.failures)), group="g", concurrency=9)
        other.start()
        finished(other)
        assert sorted(rest) == [(n, 0) for n in range(1, 10)]


def test_two_workers_share_a_group_and_a_third_changes_nothing_twice(url: str) -> None:
    logs = [lakelog.connect(url) for _ in range(3)]
    topic = made(logs[0], 6)
    seen: list[list[int]] = [[], [], []]
    for log, mine in zip(logs, seen, strict=True):
        log.topic("work").subscribe(mine.append, group="g", concurrency=2, start_from="earliest")
        log.start()
    topic.publish_many([lakelog.Outgoing(n, key=str(n % 40)) for n in range(200)])
    finished(logs[0])
    for log in logs:
        log.close()
    assert sorted(n for mine in seen for n in mine) == list(range(200))


def test_two_default_workers_share_slow_messages_evenly(http_server: ThreadServer, size: Size) -> None:
    """A worker does not prefetch messages that the other could start: 20 messages of 1 s take two workers 10 s."""
    seconds = size.pick(ci=0.2, full=1.0)
    with lakelog.connect(http_server.url) as one, lakelog.connect(http_server.url) as other:
        topic = made(one, partitions=4)
        topic.publish_many(range(20))
        handled: Counter[str] = Counter()
        both_run = threading.Event()

        def begin(log: lakelog.Lakelog, name: str) -> None:
            @log.topic("work").subscribe(group="g", start_from="earliest")
            def handle(value: int) -> None:
                both_run.wait(30)
                time.sleep(seconds)
                handled[name] += 1

            log.start()

        begin(one, "one")
        began = time.monotonic()
        begin(other, "other")
        both_run.set()
        finished(one)
        took = time.monotonic() - began
    assert handled.total() == 20 and min(handled.values()) >= 8, handled
    assert size is Size.CI or took < 12, took


def test_a_refusal_of_the_server_is_raised_at_the_start(log: lakelog.Lakelog, url: str) -> None:
    log.topic("nowhere").subscribe(print, group="g")
    with pytest.raises(TopicNotFound):
        log.start()
    with lakelog.connect(url) as first, lakelog.connect(url) as second:
        made(first).subscribe(print, group="g", retries=1)
        first.start()
        second.topic("work").subscribe(print, group="g", retries=2)
        with pytest.raises(GroupSettingsDiffer, match="retries"):
            second.run()


async def test_an_async_client_runs_until_it_is_stopped(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        topic = log.topic("work")
        await topic.create()
        seen: list[str] = []
        threads: set[str] = set()

        @topic.subscribe(group="a", start_from="earliest")
        async def handle(value: str) -> None:
            seen.append(value)

        @topic.subscribe(group="b", start_from="earliest")
        def handle_in_thread(value: str, delivery: lakelog.Delivery[str]) -> None:
            threads.add(threading.current_thread().name)
            delivery.ack()

        await topic.publish("x")
        running = asyncio.create_task(log.run())
        await eventually_async(lambda: seen and threads, within=20, what="both were run")
        await log.stop()
        await asyncio.wait_for(running, 10)
        assert threads == {"lakelog-handler"} and await log.group("a").lag() == 0
        assert (await log.group("a").describe()).members == ()
        letters = [letter async for letter in topic.dead_letters("a")]
        assert letters == []


async def _bill(seen: list[str], value: str) -> None:
    await asyncio.sleep(0)
    seen.append(value)


def _functions_that_return_awaitables(seen: list[str]) -> dict[str, Any]:
    async def wrapped(value: str, delivery: lakelog.AsyncDelivery[str]) -> None:
        assert not delivery.failures
        await _bill(seen, value)
        await delivery.ack()

    @functools.wraps(wrapped)
    def wrapper(*args: Any) -> Any:
        return wrapped(*args)

    async def twice(value: str) -> Any:
        return _bill(seen, value)

    return {
        "lambda": lambda value: _bill(seen, value),
        "lambda-with-delivery": lambda value, delivery: _bill(seen, value),
        "partial": functools.partial(_bill, seen),
        "wrapper": wrapper,
        "twice": twice,
    }


@pytest.mark.parametrize("kind", [*_functions_that_return_awaitables([])])
def test_a_message_is_acked_after_what_its_handler_returned_was_awaited(memory: lakelog.Lakelog, kind: str) -> None:
    topic = made(memory, 1)
    seen: list[str] = []
    topic.subscribe(_functions_that_return_awaitables(seen)[kind], group="g", start_from="earliest", retries=0)
    topic.publish_many(["a", "b"])
    memory.start()
    finished(memory)
    memory.stop()
    assert seen == ["a", "b"] and memory.counts["work/g"].acked == 2


def test_an_exception_of_a_returned_awaitable_fails_the_message(memory: lakelog.Lakelog) -> None:
    """So do a returned generator and a blocking delivery in the event loop."""
    topic = made(memory, 1)

    async def fail(value: str) -> None:
        raise RuntimeError("no such account")

    async def block(delivery: lakelog.Delivery[str]) -> None:
        delivery.ack()

    topic.subscribe(lambda value: fail(value), group="raises", start_from="earliest", retries=0)
    topic.subscribe(lambda value: (each for each in value), group="yields", start_from="earliest", retries=0)
    topic.subscribe(lambda value, delivery: block(delivery), group="blocks", start_from="earliest", retries=0)
    topic.publish("a")
    memory.start()
    for group, reason in {
        "raises": "RuntimeError: no such account",
        "yields": "returned a generator",
        "blocks": "Write the handler as `async def`",
    }.items():
        finished(memory, group)
        (letter,) = topic.dead_letters(group)
        assert reason in letter.error
    memory.stop()


def test_wrong_arguments_are_said_at_once(memory: lakelog.Lakelog) -> None:
    topic = memory.topic("work")
    for wrong in (
        {"concurrency": 0},
        {"ack": "sometimes"},
        {"lease": 0.01},
        {"order": "random"},
        {"batch_size": 0},
        {"prefetch": -1},
        {"prefetch": 1.5},
        {"ack_timeout": 0},
        {"retries": -1},
    ):
        with pytest.raises(InvalidRequest):
            topic.subscribe(print, group="g", **wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="value, delivery"):
        topic.subscribe(lambda: None, group="g")
    with pytest.raises(InvalidRequest, match="has no subscription"):
        memory.start()
    topic.subscribe(print, group="g")
    with pytest.raises(InvalidRequest, match="already"):
        topic.subscribe(print, group="g")
