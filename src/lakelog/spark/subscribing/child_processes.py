"""The child processes of a Spark task, which run handlers and are watched, killed and replaced.

A slot is a list of messages that run one after another in one child. The slots of a task run in parallel. A child that
dies fails only the message that it was handling. Children stay in Spark's Python worker for later tasks.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import selectors
import signal
import sys
import time
from collections import OrderedDict
from collections.abc import Sequence

from lakelog.errors import ConfigurationError
from lakelog.spark.subscribing.handling import (
    HEAD,
    LENGTH,
    ChildEvent,
    HandlerOutcome,
    HandlerTask,
    PickledHandler,
    SlotResult,
    outcome_of,
    serve_and_end,
)

LOAD_SECONDS = 300.0
"""Timeout for a child to load the handler and its imports."""
_REST_SECONDS = 0.002
"""Pause after each read: fast handlers send many events, and waking up for each one is expensive."""
_END_SECONDS = 1.0
_READ_BYTES = 1 << 16
_RECIPES_KEPT = 4
_PR_SET_PDEATHSIG = 1


class ChildProcess:
    """A process that runs one handler."""

    def __init__(self, pickled: PickledHandler) -> None:
        self.is_ready = False
        self.is_over = False
        self._rest = b""
        inbox, self._inbox = os.pipe()
        self.outbox, outbox = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            _settle_in(parent, (self._inbox, self.outbox))
            serve_and_end(inbox, outbox, pickled)
        os.close(inbox)
        os.close(outbox)

    def send(self, tasks: Sequence[HandlerTask]) -> None:
        body = pickle.dumps(tasks, protocol=pickle.HIGHEST_PROTOCOL)
        data = memoryview(LENGTH.pack(len(body)) + body)
        # If the child is gone, the end of its outbox shows it.
        with contextlib.suppress(BrokenPipeError):
            while data:
                data = data[os.write(self._inbox, data) :]

    def heard(self) -> list[tuple[ChildEvent, int, str]]:
        """Return the events since the last call; set `is_over` when the child has closed its outbox."""
        data = os.read(self.outbox, _READ_BYTES)
        self.is_over = not data
        self._rest += data
        found, at = [], 0
        while len(self._rest) - at >= HEAD.size:
            event, number, length = HEAD.unpack_from(self._rest, at)
            end = at + HEAD.size + length
            if end > len(self._rest):
                break
            found.append((ChildEvent(event), number, self._rest[at + HEAD.size : end].decode(errors="replace")))
            at = end
        self._rest = self._rest[at:]
        return found

    def end(self) -> str:
        """Kill the child if it is still running, and return how it ended."""
        status = self._status(_END_SECONDS if self.is_over else 0.0)
        os.close(self._inbox)
        os.close(self.outbox)
        code = os.waitstatus_to_exitcode(status)
        return f"ended with code {code}" if code >= 0 else f"was killed by {signal.Signals(-code).name}"

    def _status(self, seconds: float) -> int:
        """Return the exit status of the child, which is killed after the given time."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return status
            time.sleep(_REST_SECONDS)
        os.kill(self.pid, signal.SIGKILL)
        return os.waitpid(self.pid, 0)[1]


class ChildPool:
    """Idle children of this process, by handler."""

    def __init__(self) -> None:
        self._idle: OrderedDict[str, list[ChildProcess]] = OrderedDict()
        self._pid = os.getpid()

    def take(self, pickled: PickledHandler) -> ChildProcess:
        if self._pid != os.getpid():
            # This process is a fork of the one that owns these children.
            self._idle, self._pid = OrderedDict(), os.getpid()
        kept = self._idle.get(pickled.digest)
        return kept.pop() if kept else ChildProcess(pickled)

    def keep(self, pickled: PickledHandler, child: ChildProcess) -> None:
        self._idle.setdefault(pickled.digest, []).append(child)
        self._idle.move_to_end(pickled.digest)
        while len(self._idle) > _RECIPES_KEPT:
            _, others = self._idle.popitem(last=False)
            for other in others:
                other.end()

    def close(self) -> None:
        for child_pool in self._idle.values():
            for child in child_pool:
                child.end()
        self._idle.clear()


child_pool = ChildPool()


class _Slot:
    """A running slot."""

    def __init__(self, tasks: Sequence[HandlerTask], pickled: PickledHandler) -> None:
        self.result = SlotResult()
        self.child: ChildProcess | None = None
        self.deadline = 0.0
        self._tasks = tasks
        self._pickled = pickled
        self._sent: list[int] = []
        """The numbers of the tasks that the child has not finished, in reverse order."""
        self._outcomes: dict[int, HandlerOutcome] = {}
        self._blocked: set[int] = set()

    @property
    def is_done(self) -> bool:
        return len(self._outcomes) == len(self._tasks)

    def begin(self) -> None:
        """Send all remaining tasks to a child, except those that follow a failed message of the same chain."""
        left = [number for number in range(len(self._tasks)) if number not in self._outcomes]
        for number in left:
            if self._tasks[number].chain in self._blocked:
                self._outcomes[number] = HandlerOutcome(ChildEvent.RELEASE)
        self._sent = [number for number in reversed(left) if number not in self._outcomes]
        if self._sent:
            child = self.child = child_pool.take(self._pickled)
            self.deadline = time.monotonic() + (self._pickled.timeout_seconds if child.is_ready else LOAD_SECONDS)
            child.send([self._tasks[number] for number in reversed(self._sent)])

    def hear(self) -> None:
        assert self.child is not None
        for event, number, text in self.child.heard():
            self.deadline = time.monotonic() + self._pickled.timeout_seconds
            if event is ChildEvent.UNUSABLE:
                raise ConfigurationError(_unusable(self._pickled, text))
            if event is ChildEvent.READY:
                self.child.is_ready = True
            elif event is ChildEvent.EXTEND:
                self.deadline = time.monotonic() + number / 1000
            elif self._sent:
                self._settle(outcome_of(event, text, number))
        if self.is_done:
            self.let_go()
        elif self.child.is_over:
            self._lost(None)

    def overrun(self) -> None:
        """Fail the current message because its handler exceeded the timeout."""
        seconds = self._pickled.timeout_seconds
        self._lost(f"timeout: the handler did not end within {seconds:g} s")

    def let_go(self) -> None:
        child, self.child = self.child, None
        if child is None:
            return
        # A handler may have started something that ends its process after the answer.
        if child.is_over or not self.is_done:
            child.end()
        else:
            child_pool.keep(self._pickled, child)

    def finished(self) -> SlotResult:
        self.result.outcomes = [self._outcomes[number] for number in range(len(self._tasks))]
        return self.result

    def _settle(self, outcome: HandlerOutcome) -> None:
        number = self._sent.pop()
        self._outcomes[number] = outcome
        if outcome.event in (ChildEvent.NACK, ChildEvent.FAIL):
            self._blocked.add(self._tasks[number].chain)

    def _lost(self, timeout: str | None) -> None:
        """End the child, fail the message that it was handling, and continue with the other messages in a new child."""
        child, self.child = self.child, None
        assert child is not None
        how = child.end()
        if not child.is_ready:
            raise ConfigurationError(_unusable(self._pickled, timeout or f"the process that loads it {how}"))
        self.result.timed_out += timeout is not None
        self.result.crashed += timeout is None
        self._settle(HandlerOutcome(ChildEvent.NACK, timeout or f"crash: the handler's process {how}"))
        self.begin()


def run_slots(slots: Sequence[Sequence[HandlerTask]], pickled: PickledHandler) -> list[SlotResult]:
    """Run all slots until they are done; raise `ConfigurationError` if the handler cannot be loaded."""
    running = [_Slot(tasks, pickled) for tasks in slots]
    try:
        for slot in running:
            slot.begin()
        while waiting := [slot for slot in running if slot.child is not None]:
            _watch(waiting)
        return [slot.finished() for slot in running]
    finally:
        for slot in running:
            slot.let_go()


def _watch(slots: Sequence[_Slot]) -> None:
    """Wait until a child sends an event or exceeds its timeout, and handle it."""
    with selectors.DefaultSelector() as selector:
        for slot in slots:
            assert slot.child is not None
            selector.register(slot.child.outbox, selectors.EVENT_READ, slot)
        ready = selector.select(max(0.0, min(slot.deadline for slot in slots) - time.monotonic()))
    for key, _ in ready:
        key.data.hear()
    now = time.monotonic()
    for slot in slots:
        if slot.child is not None and slot.deadline <= now:
            slot.overrun()
    if any(slot.child is not None for slot in slots):
        time.sleep(_REST_SECONDS)


def _unusable(pickled: PickledHandler, why: str) -> str:
    return (
        f"The handler {pickled.name} cannot be loaded on an executor: {why}. Install its imports there; "
        "no message was counted as failed."
    )


def _settle_in(parent: int, ends: Sequence[int]) -> None:
    """Prepare the new process: end with the parent, leave Ctrl-C to the driver, and close the parent's pipe ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for end in ends:
        os.close(end)
