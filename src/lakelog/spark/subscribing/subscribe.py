"""`subscribe`: a handler for each message of a topic, run on executors, with the retries and dead letters of a group.

A loop on the driver: it leases messages, runs them in rounds (two at a time, so that one slow message leaves no core
idle), and answers. Executors never speak to the server, and a bad message never ends the loop.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from lakelog.client import processes
from lakelog.client.group_values import Answer, Answered, Consumed
from lakelog.client.worker.failures import one_line
from lakelog.client.worker.handler_types import Filter
from lakelog.client.worker.options import Retries, StartFrom, SubscriptionOptions
from lakelog.errors import LakelogError, OutcomeForgotten
from lakelog.model.arguments import check_whole
from lakelog.model.group import Order
from lakelog.model.limits import MAX_BATCH_MESSAGES
from lakelog.model.names import check_name
from lakelog.spark.session import client, connection_to, parallelism
from lakelog.spark.subscribing.executor import RoundExecutor, RoundOutcome
from lakelog.spark.subscribing.handling import pickled_handler
from lakelog.spark.subscribing.lease_member import LeaseMember, giving_back
from lakelog.spark.subscribing.rounds import SparkRound, answers_of, round_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = processes.log

_ROUND_SECONDS = 2.0
"""Rounds are made as long as that: long enough for what a job costs, short enough to end and to see how it goes."""
_ROUND_BYTES = 16 << 20
_FIRST_PER_LANE = 32
_ROUNDS = 2
_POLL_SECONDS = 1.0
_COUNTED = {"ack": "acked", "discard": "discarded"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionSummary:
    """What a subscription has done: messages by outcome, each counted for every time that it was delivered."""

    rounds: int = 0
    delivered: int = 0
    acked: int = 0
    failed: int = 0
    dead: int = 0
    """Of those that failed: given up for good."""
    discarded: int = 0
    released: int = 0
    """Not run, because an earlier message of their key had failed."""
    lost: int = 0
    """Run, but the lease was over when it was to be answered."""
    crashed: int = 0
    timed_out: int = 0
    seconds: float = 0.0

    def plus(self, other: SubscriptionSummary) -> SubscriptionSummary:
        names = [each.name for each in fields(self) if each.name != "seconds"]
        return replace(self, **{name: getattr(self, name) + getattr(other, name) for name in names})


def subscribe(
    spark: SparkSession,
    topic: str,
    group: str,
    handler: Callable[..., Any],
    *,
    type: type[Any] | None = None,
    retries: Retries | None = None,
    filter: Filter[Any] | None = None,
    order: Order | str | None = None,
    dead_letter: bool | None = None,
    start_from: StartFrom = "latest",
    concurrency: int | None = None,
    batch: int = 5000,
    handler_timeout: timedelta | float = 30.0,
    lease: timedelta | float = 30.0,
    until_empty: bool = False,
    stop: threading.Event | None = None,
    on_progress: Callable[[SubscriptionSummary], object] | None = None,
    url: str | None = None,
    token: str | None = None,
) -> SubscriptionSummary:
    """Gives each message of the topic to the handler, on executors, until SIGTERM, SIGINT or `stop`; or until the group
    has nothing left.

    The handler takes `(value)` or `(value, delivery)`, as a worker's does, and is a plain function that can be pickled.
    It runs in a process of its own: one that kills its process, or takes longer than `handler_timeout`, has failed its
    message, and no other. `concurrency` is how many run at once, by default one for each core of the cluster; `batch`
    how many messages a round has at most. `on_progress` is called after each round.
    """
    check_name("topic", topic)
    check_name("group", group)
    check_whole("batch", batch, 1, MAX_BATCH_MESSAGES)
    if concurrency is not None:
        check_whole("concurrency", concurrency, 1)
    settings = SubscriptionOptions(
        filter=filter,
        retries=retries,
        dead_letter=dead_letter,
        order=order,
        start_from=start_from,
        ack_timeout=handler_timeout,
        lease=lease,
    )
    recipe = pickled_handler(handler, filter if callable(filter) else None, type, handler_timeout)
    member = LeaseMember(client(connection_to(url, token, spark)), topic, group, settings.wish(), settings.lease_ms)
    lanes = concurrency or parallelism(spark)
    loop = SubscriptionLoop(member, RoundExecutor(spark, recipe, lanes), topic, RoundSizer(lanes, batch))
    loop.on_progress = on_progress
    with _stopping(stop or threading.Event()) as stopping:
        return loop.run(stopping, until_empty=until_empty)


class RoundSizer:
    """How many messages the next round gets, by how long the last ones took."""

    def __init__(self, lanes: int, most: int) -> None:
        self._least, self._most = min(lanes, most), most
        self.size = max(self._least, min(most, lanes * _FIRST_PER_LANE))

    def took(self, count: int, seconds: float) -> None:
        fitting = int(count * _ROUND_SECONDS / max(seconds, 0.01))
        if count >= self.size or fitting < self.size:
            self.size = max(self._least, min(self._most, fitting, self.size * 4))


class SubscriptionLoop:
    """The driver's side of one subscription."""

    def __init__(self, member: LeaseMember, executor: RoundExecutor, topic: str, pace: RoundSizer) -> None:
        self.on_progress: Callable[[SubscriptionSummary], object] | None = None
        self._member = member
        self._executor = executor
        self._topic = topic
        self._pace = pace
        self._summary = SubscriptionSummary()
        self._begun = time.monotonic()
        self._ending = threading.Event()
        self._last_reason = ""

    def run(self, stop: threading.Event, *, until_empty: bool) -> SubscriptionSummary:
        self._member.join()
        log.info("%s: started on Spark as %s", self._topic, self._member.owner)
        running: set[Future[SubscriptionSummary]] = set()
        pool = ThreadPoolExecutor(_ROUNDS, "lakelog-round")
        try:
            while not stop.is_set():
                self._settle(running, most=_ROUNDS - 1, stop=stop)
                if stop.is_set():
                    break
                taken = self._fill()
                if taken:
                    running.add(pool.submit(self._round, taken))
                elif until_empty and not running and self._member.lag() == 0:
                    break
            self._settle(running, most=0)
        finally:
            self._ending.set()
            pool.shutdown(wait=True)
            self._member.leave()
        log.info("%s: stopped, %s", self._topic, self._summary)
        return self._summary

    def _fill(self) -> list[Consumed]:
        """Leases for one round: waits for the first ones, and takes what else is there."""
        taken: list[Consumed] = []
        room, size = self._pace.size, 0
        while room > 0 and size < _ROUND_BYTES:
            found = self._member.take(room, 0.0 if taken else _POLL_SECONDS)
            if found is None or not found.leases:
                if found is None:
                    self._ending.wait(0.2)
                break
            taken.append(found)
            room -= sum(1 for lease in found.leases for _ in lease.offsets())
            size += sum(len(payload) for payload in found.payloads)
        return taken

    def _settle(
        self, running: set[Future[SubscriptionSummary]], *, most: int, stop: threading.Event | None = None
    ) -> None:
        """Returns when at most so many rounds run; what ended one of them is raised."""
        while True:
            done, _ = wait(running, timeout=_POLL_SECONDS if len(running) > most else 0, return_when=FIRST_COMPLETED)
            running -= done
            for each in done:
                self._count(each.result())
            if len(running) <= most or (stop is not None and stop.is_set()):
                return

    def _count(self, done: SubscriptionSummary) -> None:
        self._summary = replace(self._summary.plus(done), seconds=time.monotonic() - self._begun)
        if self.on_progress is not None:
            self.on_progress(self._summary)

    def _round(self, taken: Sequence[Consumed]) -> SubscriptionSummary:
        """Runs it to its end. If it cannot be run, its messages go back uncounted."""
        found = round_of(self._topic, taken, self._member.order)
        kept = [self._member.keep(partition, token) for partition, token in found.leases]
        begun = time.monotonic()
        try:
            executed = self._executor.run(found)
            self._pace.took(found.count, time.monotonic() - begun)
            return self._answer(found, executed)
        except BaseException:
            with contextlib.suppress(LakelogError):
                self._member.answer(giving_back(taken), self._ending.is_set)
            raise
        finally:
            self._member.drop(kept)

    def _answer(self, found: SparkRound, executed: RoundOutcome) -> SubscriptionSummary:
        answers = answers_of(found, executed.outcomes)
        results = self._say(answers.first)
        behind = answers.then([result for _, result in results])
        counts = dict.fromkeys(("acked", "failed", "discarded", "dead", "lost"), 0)
        for answer, result in [*results, *self._say(behind)]:
            if not isinstance(result, Answered):
                # A forgotten outcome is no loss: an earlier try of the same answer may have been accepted.
                counts["lost"] += 0 if isinstance(result, OutcomeForgotten) else len(answer.offsets)
                log.warning("%s: the answer %s was refused: %s", self._topic, answer.verb, result.detail)
            elif answer.verb != "release":
                counts[_COUNTED.get(answer.verb, "failed")] += len(answer.offsets)
                counts["dead"] += len(result.dead)
        if answers.failed:
            self._log_failed(list(answers.failed.values()), found.count, counts["dead"])
        released = sum(len(answer.offsets) for answer in answers.behind.values())
        return SubscriptionSummary(
            rounds=1,
            delivered=found.count,
            released=released,
            crashed=executed.crashed,
            timed_out=executed.timed_out,
            **counts,
        )

    def _log_failed(self, failed: Sequence[Answer], count: int, dead: int) -> None:
        """One line for a round, with the traceback of an error that differs from the last one."""
        first = failed[0]
        where = f"the first is {first.partition}:{first.offsets[0]}"
        text = f"{self._topic}: {len(failed)} of {count} messages failed, {dead} became dead letters; {where}"
        last, self._last_reason = self._last_reason, first.reason
        traceback = f"\n{first.traceback}" if first.traceback and first.reason != last else ""
        log.warning("%s: %s%s", text, one_line(first.reason), traceback.rstrip())

    def _say(self, answers: Sequence[Answer]) -> list[tuple[Answer, Answered | LakelogError]]:
        return [*zip(answers, self._member.answer(answers, self._ending.is_set), strict=True)]


@contextlib.contextmanager
def _stopping(stop: threading.Event) -> Iterator[threading.Event]:
    """Signals set it; only in the main thread, where they arrive. A second one ends the process."""
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def arrived(number: int, frame: object) -> None:
        if stop.is_set():
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        log.info("%s: finishing the rounds that run; once more ends at once", signal.Signals(number).name)
        stop.set()

    before = {number: signal.signal(number, arrived) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
