"""The worker's parts: which leases are extended when, who runs beside whom, how handlers are called and named."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from lakelog.client.dead_letter_filter import where_of
from lakelog.client.retrying import Backoff
from lakelog.client.worker import answers
from lakelog.client.worker.handlers import Handler, reason_of
from lakelog.client.worker.isolation import IsolationLock
from lakelog.client.worker.keeper_process import JsonLines, ParentProcess, keep, note
from lakelog.client.worker.lease_extension import ExtensionSchedule, KeptLease, LeaseHolder, send_due
from lakelog.client.worker.lease_keeper import ProcessLeaseKeeper
from lakelog.client.worker.leased_message import clipped
from lakelog.client.worker.threads import HandlerThreads
from lakelog.errors import InvalidRequest, LakelogError, LeaseLost, OutcomeUnknown, Overloaded, Unavailable
from lakelog.model.filter import parse
from lakelog.model.lease import Answered, LeaseAnswer, Verb
from tests.kit.waiting import eventually, eventually_async

SOURCE = LeaseHolder("t", "g", "o")


def kept(*, token: int = 1, until: float = 100.0, due: float = 10.0, holder: LeaseHolder = SOURCE) -> KeptLease:
    return KeptLease(holder, 0, token, 30.0, until, due)


def test_a_lease_is_extended_every_third_of_it_until_its_time_is_over() -> None:
    schedule = ExtensionSchedule()
    schedule.keep(1, kept())
    assert schedule.due(9.9) == [] and schedule.next_due() == 10.0
    (extensions,) = schedule.due(10.0)
    assert (extensions.holder, extensions.answers[0].verb, extensions.answers[0].lease_ms) == (SOURCE, "extend", 30_000)
    schedule.settle(extensions, [Answered()], 10.0)
    assert schedule.next_due() == 20.0
    assert schedule.due(100.0) == [], "never beyond what its handler may take"
    schedule.prolong(1, 200.0)
    assert len(schedule.due(100.0)) == 1
    schedule.drop(1)
    assert schedule.due(100.0) == [] and schedule.next_due() is None


def test_a_lost_lease_is_dropped_and_a_failed_call_is_repeated_soon() -> None:
    schedule = ExtensionSchedule()
    schedule.keep(1, kept(token=1))
    schedule.keep(2, kept(token=2))
    schedule.keep(3, kept(token=3, holder=LeaseHolder("t", "g2", "o")))
    extensions, other = schedule.due(10.0)
    schedule.settle(extensions, [LeaseLost("over"), Unavailable("away")], 10.0)
    schedule.settle(other, [Answered()], 10.0)
    assert len(schedule) == 2 and schedule.next_due() == 12.5


def test_sending_holds_up_nobody_and_survives_errors() -> None:
    guard = threading.Lock()
    schedule = ExtensionSchedule()
    schedule.keep(1, kept(until=float("inf"), due=0.0))

    def send(holder: LeaseHolder, answers: Sequence[LeaseAnswer], seconds: float) -> list[Answered | LakelogError]:
        assert not guard.locked() and seconds == 5.0
        raise Unavailable("away")

    assert isinstance(send_due(schedule, send, guard), Unavailable)
    assert len(schedule) == 1


class _Parent(ParentProcess):
    def __init__(self, runs: bool, turns: int) -> None:
        super().__init__(os.getpid())
        self._answer, self._turns = runs, turns

    @property
    def runs(self) -> bool:
        return self._answer

    @property
    def gone(self) -> bool:
        self._turns -= 1
        return self._turns < 0


@pytest.mark.parametrize("runs", [True, False])
def test_the_keeper_extends_only_while_its_parent_runs(runs: bool) -> None:
    sent: list[int | None] = []

    def send(holder: LeaseHolder, answers: Sequence[LeaseAnswer], seconds: float) -> list[Answered | LakelogError]:
        sent.extend(answer.token for answer in answers)
        return [Answered() for _ in answers]

    reader, writer = os.pipe()
    line = [1, "t", "g", "o", 0, 7, 0.03, 1e12, 0.0]
    os.write(writer, (json.dumps(line) + "\n").encode())
    keep(JsonLines(reader), _Parent(runs, 5), send)
    assert (7 in sent) is runs
    os.close(writer)
    os.close(reader)


def test_the_state_of_a_process_is_what_the_kernel_says() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    parent = ParentProcess(child.pid)
    parent_gone = ParentProcess.gone
    try:
        ParentProcess.gone = property(lambda self: False)  # type: ignore[assignment,misc]
        assert parent.runs
        child.send_signal(signal.SIGSTOP)
        eventually(lambda: not parent.runs, what="stopped")
        child.send_signal(signal.SIGCONT)
        eventually(lambda: parent.runs, what="goes on")
        child.kill()
        eventually(lambda: not parent.runs, what="a zombie")
        child.wait()
        assert not parent.runs
    finally:
        ParentProcess.gone = parent_gone  # type: ignore[method-assign]
        child.kill()
        child.communicate()
    assert ParentProcess(os.getppid()).runs and not ParentProcess(os.getppid()).gone and ParentProcess(1 << 22).gone


def test_what_the_keeper_is_told() -> None:
    schedule = ExtensionSchedule()
    note(schedule, [1, "t", "g", "o", 0, 7, 30.0, 50.0, 10.0])
    note(schedule, [1, 99.0])
    assert len(schedule.due(98.0)) == 1
    note(schedule, [1])
    assert len(schedule) == 0


async def test_a_keeper_process_gets_its_secrets_by_its_pipe_alone() -> None:
    """Its arguments and its environment hold no secret, and it ends when it is closed."""
    keeper = ProcessLeaseKeeper({"url": "http://127.0.0.1:1", "token": "secret-token", "project": "p"})
    keeper.begin()
    await keeper.ready()
    (pid,) = [keeper._process.pid] if keeper._process else [0]
    keeper.keep(SOURCE, 0, 1, 30.0, 1e12)
    keeper.flush()
    for name in ("cmdline", "environ"):
        with open(f"/proc/{pid}/{name}", "rb") as file:
            assert b"secret-token" not in file.read()
    keeper.close()
    assert not os.path.exists(f"/proc/{pid}")


async def test_a_suspect_waits_for_the_others_and_goes_before_new_ones() -> None:
    quarantine = IsolationLock()
    await quarantine.enter()
    await quarantine.enter()
    alone = asyncio.create_task(quarantine.enter_alone(10))
    await asyncio.sleep(0)
    new = asyncio.create_task(quarantine.enter())
    await asyncio.sleep(0)
    quarantine.leave()
    await asyncio.sleep(0.01)
    assert not alone.done() and not new.done()
    quarantine.leave()
    assert await alone and not new.done()
    quarantine.leave_alone()
    await asyncio.wait_for(new, 1)


async def test_a_suspect_that_cannot_be_alone_in_time_lets_the_others_go_on() -> None:
    quarantine = IsolationLock()
    await quarantine.enter()
    assert not await quarantine.enter_alone(0.01)
    await asyncio.wait_for(quarantine.enter(), 1)
    cancelled = asyncio.create_task(quarantine.enter_alone(10))
    await asyncio.sleep(0)
    cancelled.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await cancelled
    await asyncio.wait_for(quarantine.enter(), 1)


def test_handler_threads_are_used_again_and_hold_up_nobody() -> None:
    threads = HandlerThreads()
    first = threads.submit(threading.get_ident).result(5)
    eventually(lambda: threads._idle, what="idle again")
    assert threads.submit(threading.get_ident).result(5) == first
    stuck = threading.Event()
    never = threads.submit(stuck.wait)
    assert threads.submit(lambda: 1).result(5) == 1
    with pytest.raises(SystemExit):
        threads.submit(sys.exit).result(5)
    threads.close()
    stuck.set()
    assert never.result(5)


def test_handlers_are_called_as_their_signature_asks_for() -> None:
    class Callable_:
        async def __call__(self, value: Any) -> None: ...

    async def both(value: Any, delivery: Any) -> None: ...

    def setting(value: Any, rate: int = 3) -> None: ...

    def optional(value: Any, delivery: Any = None) -> None: ...

    def asks(function: Any) -> tuple[bool, bool]:
        handler = Handler(function)
        return handler.is_async, handler.wants_delivery

    assert asks(both) == (True, True) and asks(functools.partial(both, delivery=1)) == (True, False)
    assert asks(Callable_()) == (True, False) and asks([].append) == (False, False)
    assert asks(setting) == (False, False) and asks(optional) == (False, True)
    assert asks(lambda *args: None) == (False, True)
    for wrong in (lambda: None, lambda a, b, c: None, 3):
        with pytest.raises(InvalidRequest):
            Handler(wrong)  # type: ignore[arg-type]


def test_generators_are_refused_as_handlers() -> None:
    def plain(value: Any) -> Any:
        yield value

    async def coroutine(value: Any) -> Any:
        yield value

    class Callable_:
        def __call__(self, value: Any) -> Any:
            yield value

    for wrong in (plain, coroutine, functools.partial(plain), Callable_()):
        with pytest.raises(InvalidRequest, match="contains `yield`"):
            Handler(wrong)


def test_reasons_fit_into_what_is_stored() -> None:
    assert reason_of(ValueError("no")) == "ValueError: no" and reason_of(KeyError()) == "KeyError"
    assert len(clipped("ä" * 5000).encode()) == 4096 and "\0" not in clipped("a\0b") and clipped("\ud800")


def test_pauses_grow_have_an_end_and_heed_the_server() -> None:
    backoff = Backoff(chance=lambda: 1.0)
    assert [backoff.next() for _ in range(9)] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert backoff.next(Overloaded("full", retry_after=30)) == 30.0


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((None, None, None, None), None),
        ((None, "key = 'a'", None, None), "key = 'a'"),
        ((None, None, "it's", None), "error like '%it''s%'"),
        (("a.b = 1 or key = 'c'", None, None, "k"), "(a.b = 1 or key = 'c') and key = 'k'"),
    ],
)
def test_filters_of_dead_letters(given: tuple[str | None, ...], expected: str | None) -> None:
    found = where_of(*given)
    assert found == expected
    if found and "a.b" not in found:
        parse(found)


async def test_S10_an_answer_that_waits_for_its_database_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "Backoff", functools.partial(Backoff, first_seconds=30.0, longest_seconds=30.0))
    said: list[list[int]] = []

    async def send(some: Sequence[LeaseAnswer]) -> list[Answered | LakelogError]:
        said.append([each.partition for each in some])
        if said[-1] == [0]:
            raise Unavailable("away")
        return [Unavailable("away") if each.partition == 0 else Answered() for each in some]

    sender = answers.AnswerSender(send)
    stuck = sender.submit(LeaseAnswer(verb=Verb.ACK, partition=0, token=1, offsets=(0,)))
    await eventually_async(lambda: said == [[0]], what="it was said once")
    await asyncio.wait_for(sender.submit(LeaseAnswer(verb=Verb.ACK, partition=1, token=1, offsets=(0,))), 5.0)
    assert said == [[0], [0, 1]] and not stuck.done()
    sender.give_up_after(0.0)
    await asyncio.wait_for(sender.submit(LeaseAnswer(verb=Verb.ACK, partition=1, token=1, offsets=(1,))), 5.0)
    with pytest.raises(Unavailable):
        await stuck


async def test_S11_an_ack_of_unknown_outcome_is_not_merged_with_a_later_one() -> None:
    """The server accepts the first ack, and its response is lost; then the lease ends."""
    calls: list[list[tuple[int, ...]]] = []

    async def send(said: Sequence[LeaseAnswer]) -> list[Answered | LakelogError]:
        calls.append([answer.offsets for answer in said])
        if len(calls) == 1:
            raise OutcomeUnknown("lost")
        return [Answered() if answer.offsets == (0, 1) else LeaseLost() for answer in said]

    sender = answers.AnswerSender(send)
    first = [sender.submit(LeaseAnswer(verb=Verb.ACK, partition=0, token=1, offsets=(offset,))) for offset in (0, 1)]
    await eventually_async(lambda: bool(calls), what="they were sent once")
    later = sender.submit(LeaseAnswer(verb=Verb.ACK, partition=0, token=1, offsets=(2,)))
    assert await asyncio.wait_for(asyncio.gather(*first), 5.0) == [Answered(), Answered()]
    with pytest.raises(LeaseLost):
        await later
    assert calls == [[(0, 1)], [(0, 1), (2,)]]
