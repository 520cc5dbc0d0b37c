"""`subscribe`: runs a handler on executors for each message of a topic, with the retries and dead letters of a group.

A loop on the driver leases messages, runs them in rounds and answers. Two rounds run at a time, so that one slow
message leaves no core idle. Executors never call the server, and a bad message never ends the loop.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from lakelog.client import processes
from lakelog.client.values import Consumed
from lakelog.client.worker.failures import one_line
from lakelog.client.worker.handlers import Filter
from lakelog.client.worker.options import Retries, StartFrom, SubscriptionOptions
from lakelog.client.worker.signals import stop_on_signals
from lakelog.errors import LakelogError, OutcomeForgotten
from lakelog.model.arguments import check_whole
from lakelog.model.group import Order
from lakelog.model.lease import Answered, LeaseAnswer, Verb
from lakelog.model.limits import MAX_BATCH_MESSAGES
from lakelog.model.names import check_name
from lakelog.spark.session import check_no_speculation, client, connection_to, parallelism
from lakelog.spark.subscribing.executor import RoundExecutor, RoundOutcome
from lakelog.spark.subscribing.handling import pickled_handler
from lakelog.spark.subscribing.lease_member import LeaseMember, giving_back
from lakelog.spark.subscribing.rounds import SparkRound, answers_of, round_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = processes.log

_ROUND_SECONDS = 2.0
"""Target duration of a round: long compared with the cost of a job, but short enough to stop and report progress."""
_ROUND_BYTES = 16 << 20
_FIRST_PER_LANE = 32
_ROUNDS = 2
_POLL_SECONDS = 1.0
_COUNTED = {Verb.ACK: "acked", Verb.DISCARD: "discarded"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionSummary:
    """The result of a subscription: messages by outcome, counted once for each delivery.

    Attributes:
        rounds: Rounds that ran.
        delivered: Messages that were leased.
        acked: Messages that the handler finished.
        failed: Messages whose handler failed.
        dead: Failed messages that became dead letters.
        discarded: Messages that the handler discarded.
        released: Messages that were not run, because an earlier message of their key failed.
        lost: Messages that were run, but whose lease had ended when the answer was sent.
        crashed: Messages whose handler ended its process.
        timed_out: Messages whose handler exceeded `ack_timeout`.
        seconds: Duration of the subscription.
    """

    rounds: int = 0
    delivered: int = 0
    acked: int = 0
    failed: int = 0
    dead: int = 0
    discarded: int = 0
    released: int = 0
    lost: int = 0
    crashed: int = 0
    timed_out: int = 0
    seconds: float = 0.0

    def plus(self, other: SubscriptionSummary) -> SubscriptionSummary:
        """Return the sum of both summaries, with the duration of this one.

        Args:
            other: The summary to add.
        """
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
    batch_size: int = 5000,
    ack_timeout: timedelta | float = 30.0,
    lease: timedelta | float = 30.0,
    until_empty: bool = False,
    stop: threading.Event | None = None,
    on_progress: Callable[[SubscriptionSummary], object] | None = None,
    url: str | None = None,
    token: str | None = None,
) -> SubscriptionSummary:
    """Run the handler on executors for each message of the topic, until SIGTERM, SIGINT or `stop`.

    The handler is a function that can be pickled and that takes `(value)` or `(value, delivery)`, like that of a
    worker. It runs in its own process: a handler that ends its process or exceeds `ack_timeout` fails only its
    message.

    Args:
        spark: The session.
        topic: The topic to read.
        group: The group, which is created if it does not exist.
        handler: The function to run for each message. It must not be a coroutine function.
        type: The class of the values, as for `Lakelog.topic`. Default: None, values are bytes, text or JSON.
        retries: The retry policy of the group, as for `Topic.subscribe`. Default: that of the group.
        filter: An expression that the server evaluates, or a function that executors call with the value. Messages that
            do not match are acked without running the handler. Default: that of the group.
        order: The order in which messages are delivered. Default: that of the group.
        dead_letter: True to keep a message as a dead letter after its last retry; False discards it. Default: that of
            the group.
        start_from: Where a new group starts: "latest", "earliest", or a time. Default: "latest".
        concurrency: How many handlers run at the same time, 1 or more. Default: one for each core of the cluster.
        batch_size: The largest number of messages in a round, from 1 to 10,000. Default: 5000.
        ack_timeout: How long a handler may take, in seconds or as a timedelta, above zero. Default: 30 seconds.
        lease: The duration of a lease, in seconds or as a timedelta. The driver extends leases while handlers run.
            Default: 30 seconds.
        until_empty: Return when the group has no messages left. Default: False.
        stop: An event that ends the subscription after the running rounds. Default: none.
        on_progress: A function that is called with the result so far after each round.
        url: The URL of the server. Default: that of the session, then `LAKELOG_URL`, then the server of `lakelog dev`.
        token: The token. Default: that of the session, then `LAKELOG_TOKEN`, then the token of `lakelog dev`.

    Raises:
        ConfigurationError: If the handler cannot be loaded on executors, or if `spark.speculation` is on: two copies
            of a task would run a message, and its key, at the same time.
        InvalidRequest: If the handler cannot be pickled, or if an argument is not valid.
    """
    check_name("topic", topic)
    check_name("group", group)
    check_whole("batch_size", batch_size, 1, MAX_BATCH_MESSAGES)
    if concurrency is not None:
        check_whole("concurrency", concurrency, 1)
    settings = SubscriptionOptions(
        filter=filter,
        retries=retries,
        dead_letter=dead_letter,
        order=order,
        start_from=start_from,
        ack_timeout=ack_timeout,
        lease=lease,
    )
    check_no_speculation(spark)
    pickled = pickled_handler(handler, filter if callable(filter) else None, type, ack_timeout)
    member = LeaseMember(
        client(connection_to(url, token, spark)), topic, group, settings.group_settings(), settings.lease_ms
    )
    slots = concurrency or parallelism(spark)
    loop = SubscriptionLoop(member, RoundExecutor(spark, pickled, slots), topic, RoundSizer(slots, batch_size))
    loop.on_progress = on_progress
    stopping = stop or threading.Event()

    def begin_to_stop(name: str) -> None:
        log.info("%s: finishing the running rounds. Send it again to exit immediately.", name)
        stopping.set()

    with stop_on_signals(begin_to_stop):
        return loop.run(stopping, until_empty=until_empty)


class RoundSizer:
    """Chooses the number of messages of the next round from the duration of the last rounds."""

    def __init__(self, slots: int, most: int) -> None:
        self._least, self._most = min(slots, most), most
        self.size = max(self._least, min(most, slots * _FIRST_PER_LANE))

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
        """Return the leases of one round: wait for the first lease, then take all that are available."""
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
        """Wait until at most `most` rounds are running, and raise the error of a round that failed."""
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
        """Run a round and answer its messages. If it cannot run, release its messages without counting a failure."""
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
                # A forgotten outcome is not a loss: an earlier attempt of the same answer may have been accepted.
                counts["lost"] += 0 if isinstance(result, OutcomeForgotten) else len(answer.offsets)
                log.warning("%s: the answer %s was refused: %s", self._topic, answer.verb, result.detail)
            elif answer.verb is not Verb.RELEASE:
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

    def _log_failed(self, failed: Sequence[LeaseAnswer], count: int, dead: int) -> None:
        """Log one line for a round, with the traceback of an error that differs from the last one."""
        first = failed[0]
        where = f"the first is {first.partition}:{first.offsets[0]}"
        text = f"{self._topic}: {len(failed)} of {count} messages failed, {dead} became dead letters; {where}"
        last, self._last_reason = self._last_reason, first.reason
        traceback = f"\n{first.traceback}" if first.traceback and first.reason != last else ""
        log.warning("%s: %s%s", text, one_line(first.reason), traceback.rstrip())

    def _say(self, answers: Sequence[LeaseAnswer]) -> list[tuple[LeaseAnswer, Answered | LakelogError]]:
        return [*zip(answers, self._member.answer(answers, self._ending.is_set), strict=True)]
