"""The log of a worker about failed attempts, as a person reads it."""

from __future__ import annotations

import asyncio
import logging
import re
import subprocess
import sys
import textwrap
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lakelog.client.worker import failures
from lakelog.errors import LeaseLost
from lakelog.model.group import Fixed
from lakelog.model.tracebacks import MAX_TRACEBACK_BYTES
from tests.kit.waiting import eventually_async
from tests.unit.client.worker.faulty_groups import FaultyLeaseTransport, faulty_client


@dataclass(frozen=True, slots=True)
class Order:
    total: int


@asynccontextmanager
async def topic(kind: Any = None) -> AsyncIterator[tuple[Any, Any, FaultyLeaseTransport]]:
    log, groups = faulty_client()
    async with log:
        found = log.topic("orders", type=kind)
        await found.create()
        try:
            yield log, found, groups
        finally:
            await log.stop(1.0)


def said(caplog: pytest.LogCaptureFixture, level: int = logging.WARNING) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= level]


def tracebacks(caplog: pytest.LogCaptureFixture) -> list[str]:
    formatter = logging.Formatter("%(message)s")
    texts = (formatter.format(record).partition("\n")[2] for record in caplog.records if record.exc_info)
    return [text for text in texts if text]


async def run(log: Any, caplog: pytest.LogCaptureFixture, lines: int) -> list[str]:
    """Starts the workers, and returns the first lines that they log."""
    await log.start()
    await eventually_async(lambda: len(said(caplog)) >= lines, what=f"{lines} lines")
    return said(caplog)


def look_up(prices: dict[str, int]) -> int:
    try:
        return prices["apples"]
    except KeyError as error:
        raise ValueError("no price") from error


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "plain"])
async def test_each_failed_attempt_is_logged_until_the_last_one_makes_a_dead_letter(
    is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with topic() as (log, orders, _):
        await orders.publish({"apples": 1})
        await orders.publish({}, key="acct_1")

        async def bill(prices: dict[str, int]) -> None:
            look_up(prices)

        handler = bill if is_async else look_up
        orders.subscribe(handler, group="billing", retries=Fixed(max=1, seconds=0.04), start_from="earliest")
        lines = await run(log, caplog, 2)
        letter_id = (await orders.dead_letters("billing").list())[0].id
    assert lines == [
        "orders/billing message 0:1 (key acct_1): attempt 1 of 2 failed, next attempt in 0.0 s: ValueError: no price",
        f"orders/billing message 0:1 (key acct_1): attempt 2 of 2 failed, dead letter (lakelog dead show billing "
        f"{letter_id}): ValueError: no price",
    ]
    assert [record.levelname for record in caplog.records if record.levelno > logging.INFO] == ["WARNING", "ERROR"]


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "plain"])
async def test_the_traceback_begins_in_the_handler_and_keeps_causes(
    is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with topic() as (log, orders, _):
        await orders.publish({})

        async def bill(prices: dict[str, int]) -> None:
            look_up(prices)

        handler = bill if is_async else look_up
        orders.subscribe(handler, group="billing", retries=0, start_from="earliest")
        await run(log, caplog, 1)
    (text,) = tracebacks(caplog)
    cause, _, effect = text.partition("The above exception was the direct cause")
    assert cause.splitlines()[-2:] == ["KeyError: 'apples'", ""]
    assert text.splitlines()[-1] == "ValueError: no price"
    assert set(re.findall(r'File "(.*?)"', text)) == {__file__}, "no frames of the worker, asyncio or threads"
    first = re.findall(r", in (\w+)", effect)[0]
    assert first == ("bill" if is_async else "look_up")


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "plain"])
async def test_the_dead_letter_keeps_the_traceback_that_is_logged(
    is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with topic() as (log, orders, _):
        await orders.publish({})

        async def bill(prices: dict[str, int]) -> None:
            look_up(prices)

        handler = bill if is_async else look_up
        orders.subscribe(handler, group="billing", retries=Fixed(max=1, seconds=0), start_from="earliest")
        await run(log, caplog, 2)
        (letter,) = await orders.dead_letters("billing").list()
    assert letter.traceback == tracebacks(caplog)[0] + "\n"


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "plain"])
@pytest.mark.parametrize(
    ("error", "reason"),
    [(TimeoutError("the bank"), "TimeoutError: the bank"), (StopIteration(), r"RuntimeError: .* raised StopIteration")],
)
async def test_errors_that_futures_treat_specially_are_failures_like_others(
    error: Exception, reason: str, is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def bill(value: object) -> None:
        raise error

    async def bill_async(value: object) -> None:
        raise error

    async with topic() as (log, orders, _):
        await orders.publish("one")
        orders.subscribe(bill_async if is_async else bill, group="billing", retries=0, start_from="earliest")
        (line,) = await run(log, caplog, 1)
        (letter,) = await orders.dead_letters("billing").list()
    assert re.search(reason, line) and "raise error" in letter.traceback


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "plain"])
async def test_a_fail_in_an_except_block_keeps_the_traceback_of_what_was_caught(
    is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(prices: dict[str, int], delivery: Any) -> None:
        try:
            look_up(prices)
        except ValueError:
            delivery.fail("no such fruit")

    async def fail_async(prices: dict[str, int], delivery: Any) -> None:
        try:
            look_up(prices)
        except ValueError:
            await delivery.fail("no such fruit")

    async with topic() as (log, orders, _):
        await orders.publish({})
        orders.subscribe(fail_async if is_async else fail, group="billing", start_from="earliest")
        (line,) = await run(log, caplog, 1)
        (letter,) = await orders.dead_letters("billing").list()
    assert line.endswith(": no such fruit") and letter.error == "no such fruit"
    assert letter.traceback == tracebacks(caplog)[0] + "\n" and "ValueError: no price" in letter.traceback


async def test_the_traceback_of_a_dead_letter_keeps_the_innermost_frames_and_the_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def dig(depth: int) -> None:
        if not depth:
            raise ValueError("first line\n" + "x" * 50_000)
        (dig if depth % 2 else bury)(depth - 1)

    def bury(depth: int) -> None:
        dig(depth)

    async with topic() as (log, orders, _):
        await orders.publish(200)
        orders.subscribe(dig, group="billing", retries=0, start_from="earliest")
        await run(log, caplog, 1)
        (letter,) = await orders.dead_letters("billing").list()
    assert len(letter.traceback.encode()) <= MAX_TRACEBACK_BYTES
    assert 'raise ValueError("first line' in letter.traceback and "ValueError: first line\n" in letter.traceback


async def test_a_storm_of_one_error_is_a_traceback_some_lines_and_a_number(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "WINDOW_SECONDS", 600.0)
    async with topic() as (log, orders, _):
        await orders.publish_many([*range(100)])

        @orders.subscribe(group="billing", concurrency=10, retries=0, start_from="earliest")
        async def bill(value: int) -> None:
            if value == 90:
                raise OSError("disk")
            raise ValueError(f"no account {value}")

        await log.start()
        await eventually_async(lambda: log.counts["orders/billing"].dead == 100, what="all failed")
        await log.stop(1.0)
    lines = said(caplog)
    assert len(lines) == 1 + failures.LINES + 1 + 1
    assert sum("OSError: disk" in line for line in lines) == 1, "another error is not hidden by the storm"
    assert lines[-1] == "orders/billing: 78 more dead letters in 600 s"
    assert sorted(text.splitlines()[-1] for text in tracebacks(caplog)) == ["OSError: disk", "ValueError: no account 0"]


async def test_the_number_of_lines_left_out_comes_by_itself(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "WINDOW_SECONDS", 0.5)
    monkeypatch.setattr(failures, "LINES", 0)
    async with topic() as (log, orders, _):
        await orders.publish_many([1, 2, 3])

        @orders.subscribe(group="billing", concurrency=3, start_from="earliest")
        async def bill(value: int) -> None:
            raise ValueError("no account")

        lines = await run(log, caplog, 2)
    assert lines[1] == "orders/billing: 2 more failed attempts in 0.5 s"


def forget(value: object, delivery: Any) -> None:
    """Answers nothing."""


def nack(value: object, delivery: Any) -> None:
    delivery.nack(delay=60, reason="the bank\nis closed")


def nack_without_reason(value: object, delivery: Any) -> None:
    delivery.nack(delay=1.5)


def fail(value: object, delivery: Any) -> None:
    delivery.fail("no such account")


@pytest.mark.parametrize(
    ("handler", "line"),
    [
        (nack, "attempt 1 of 4 failed, next attempt in 60.0 s: the bank is closed"),
        (nack_without_reason, "attempt 1 of 4 failed, next attempt in 1.5 s: nack without a reason"),
        (fail, "attempt 1 of 4 failed for good, dead letter (lakelog dead show billing ID): no such account"),
        (
            forget,
            "attempt 1 of 4 failed, next attempt in 1.0 s: The handler returned without an answer. With "
            "ack='manual' it must call ack, nack, fail or discard.",
        ),
    ],
)
async def test_what_a_handler_says_or_forgets_to_say_is_logged(
    handler: Callable[..., None], line: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with topic() as (log, orders, _):
        await orders.publish("one")
        orders.subscribe(handler, group="billing", ack="manual", retries=Fixed(max=3), start_from="earliest")
        lines = await run(log, caplog, 1)
    found = re.sub(r"billing \d+-0-0", "billing ID", lines[0])
    assert found == f"orders/billing message 0:0 (text/plain): {line}"
    assert tracebacks(caplog) == []


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "plain"])
async def test_a_timeout_says_where_the_handler_hangs(is_async: bool, caplog: pytest.LogCaptureFixture) -> None:
    release = threading.Event()

    def call_bank() -> None:
        release.wait(30)

    def bill(value: object) -> None:
        call_bank()

    async def call_bank_async() -> None:
        await asyncio.Event().wait()

    async def bill_async(value: object) -> None:
        await call_bank_async()

    async with topic() as (log, orders, _):
        await orders.publish({})
        handler = bill_async if is_async else bill
        orders.subscribe(handler, group="billing", ack_timeout=0.2, retries=0, start_from="earliest")
        (line,) = await run(log, caplog, 1)
        (letter,) = await orders.dead_letters("billing").list()
        release.set()
    still = "" if is_async else "; its thread still runs"
    assert line.endswith(f": timeout: the handler did not end within 0.2 s{still}")
    assert letter.traceback == tracebacks(caplog)[0] + "\n"
    first, second = re.findall(r", in (\w+)", letter.traceback)[:2]
    assert (first, second) == (("bill_async", "call_bank_async") if is_async else ("bill", "call_bank"))


async def test_a_value_that_cannot_be_decoded_is_logged_with_its_type_and_first_bytes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with topic(Order) as (log, orders, _):
        await log.topic("orders").publish("two apples, please, and then as many pears as you have")
        orders.subscribe(print, group="billing", start_from="earliest")
        (line,) = await run(log, caplog, 1)
    assert "attempt 1 of 4 failed for good, dead letter" in line
    assert "not valid as Order: JSON is malformed" in line
    assert "content type text/plain and begins with b'two apples, please, and then as many pea'…" in line
    assert tracebacks(caplog) == [], "no code of the user was involved"


async def test_a_failure_whose_answer_is_refused_is_logged_too(caplog: pytest.LogCaptureFixture) -> None:
    async with topic() as (log, orders, groups):
        await orders.publish("one")
        groups.answer_faults.append(LeaseLost("The lease expired."))

        @orders.subscribe(group="billing", start_from="earliest")
        async def bill(value: object) -> None:
            raise ValueError("no account")

        first, second = (await run(log, caplog, 2))[:2]
    assert first == "orders/billing message 0:0 (text/plain): attempt 1 failed: ValueError: no account"
    assert second == "orders/billing message 0:0 (text/plain): the server refused the answer nack: The lease expired."


async def test_keys_and_reasons_cannot_steer_the_terminal(caplog: pytest.LogCaptureFixture) -> None:
    async with topic() as (log, orders, _):
        await orders.publish("one", key=b"\x1b[2J\xff" + b"k" * 100)

        @orders.subscribe(group="billing", retries=0, start_from="earliest")
        async def bill(value: object) -> None:
            raise ValueError("red \x1b[31m alert " + "x" * 1000)

        (line,) = await run(log, caplog, 1)
    assert line.isprintable() and len(line) < 500


async def test_a_group_without_dead_letters_says_that_the_message_is_discarded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with topic() as (log, orders, _):
        await orders.publish("one")
        orders.subscribe(look_up, group="billing", retries=0, dead_letter=False, start_from="earliest")
        (line,) = await run(log, caplog, 1)
    assert "attempt 1 of 1 failed, discarded: TypeError" in line


def test_failures_are_visible_without_logging_being_configured(tmp_path: Path) -> None:
    program = tmp_path / "app.py"
    program.write_text(
        textwrap.dedent(
            """
            import threading, lakelog

            given_up = threading.Event()
            log = lakelog.connect("memory://")
            orders = log.topic("orders")
            orders.create()

            @orders.subscribe(group="billing", retries=0, start_from="earliest", on_dead=lambda *_: given_up.set())
            def bill(order):
                raise ValueError("no account")

            orders.publish("one")
            log.start()
            given_up.wait(30)
            log.close()
            """
        )
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=60)
    lines = done.stderr.splitlines()
    assert lines[0].endswith("): ValueError: no account") and lines[0].startswith("orders/billing message 0:0 (text")
    assert lines[1:] == [
        "Traceback (most recent call last):",
        f'  File "{program}", line 11, in bill',
        '    raise ValueError("no account")',
        "ValueError: no account",
    ]
