"""`scripts/prove failover`: promotes the standby of two clusters again and again under load, and judges the record."""

from __future__ import annotations

import json
import sys
import time
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from prove.commands import ProveCommand, in_folder, say, write_json
from prove.failover.load import GROUP, TOPIC, FailoverLoad, read_log
from prove.failover.pair import ReplicatedPair
from prove.failover.record import FailoverRecord, FailoverVerdict, judge
from prove.lab.load.calls import HttpCaller
from tests.kit.ports import free_port
from tests.kit.process import Process, Supervisor
from tests.kit.waiting import eventually

PARTITIONS = 4
SERVERS = 2
SERVING_SECONDS = 10.0
"""The time within which a publish must succeed after a promotion."""
_DRAIN_SECONDS = 300.0
_PARTITION_BITS = 16


class FailoverFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of `failover.json`."""

    verdict: str
    synchronous: bool
    promotions: int
    acknowledged: int
    unknown: int
    delivered: int
    lost: int
    reported: int
    refused_reads: int
    longest_serving_seconds: float
    minutes: float
    violations: tuple[str, ...]


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--messages", type=int, default=2_000_000, help="messages to acknowledge (default: %(default)s)"
    )
    parser.add_argument("--promotions", type=int, default=20, help="number of promotions (default: %(default)s)")
    parser.add_argument("--asynchronous", action="store_true", help="use an asynchronous standby, which loses writes")
    parser.add_argument(
        "--minutes", type=float, default=60.0, help="maximum duration of the load (default: %(default)s)"
    )
    parser.add_argument("--dir", type=Path, help="folder for logs and figures (default: a new one)")


def run(asked: Namespace) -> int:
    return in_folder("failover", asked.dir, lambda folder: _proved(asked, folder))


def _proved(asked: Namespace, folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with ReplicatedPair(is_synchronous=not asked.asynchronous) as pair, Supervisor(folder) as supervisor:
        run = FailoverRun(pair, supervisor, asked)
        run.load()
        verdict, reported = run.judge()
    violations = [*verdict.violations, *run.violations]
    record = run.record
    figures = FailoverFigures(
        verdict="invalid" if violations else "valid",
        synchronous=pair.is_synchronous,
        promotions=len(run.serving),
        acknowledged=len(record.acked),
        unknown=record.unknown,
        delivered=record.delivered,
        lost=sum(verdict.lost.values()),
        reported=reported,
        refused_reads=record.refused_reads,
        longest_serving_seconds=round(max(run.serving, default=0.0), 2),
        minutes=round((time.monotonic() - began) / 60, 1),
        violations=tuple(violations),
    )
    write_json(folder / "failover.json", figures)
    for name, value in msgspec.structs.asdict(figures).items():
        say(f"  {name}: {value}")
    say(f"{figures.verdict}; {folder}")
    return int(bool(violations))


class FailoverRun:
    """The load and the promotions of one run."""

    def __init__(self, pair: ReplicatedPair, supervisor: Supervisor, asked: Namespace) -> None:
        self._pair = pair
        self._asked = asked
        self.record = FailoverRecord(partitions=PARTITIONS)
        self.serving: list[float] = []
        """Seconds from each promotion until a publish had succeeded."""
        self.violations: list[str] = []
        self._ports = [free_port() for _ in range(SERVERS)]
        self._servers = [_start(supervisor, pair.url, number, port) for number, port in enumerate(self._ports)]
        self._caller = HttpCaller(self._ports, 60.0)
        made = self._caller.call("POST", "/v1/topics", {"name": TOPIC, "partitions": PARTITIONS})
        if made.outcome != "ok":
            raise RuntimeError(f"the topic cannot be created: {made.reason}")
        self._load = FailoverLoad(self._ports, self.record, producers=4, workers=4)

    def load(self) -> None:
        """Run the load with all promotions, then wait until the group has finished."""
        asked, record = self._asked, self.record
        until = time.monotonic() + 60 * asked.minutes
        self._load.start()
        for number in range(asked.promotions):
            self._await(int((number + 0.5) * asked.messages / asked.promotions), until)
            if time.monotonic() > until:
                say("no time is left for further promotions")
                break
            self._promote(stops=number % 2 == 1)
        self._await(asked.messages, until)
        self._load.stop("producer")
        eventually(self._is_drained, within=_DRAIN_SECONDS, every=0.5, what="the group has finished")
        self._load.stop("consumer")
        self.violations += self._load.failures
        say(f"{len(record.acked):,} acknowledged, {record.delivered:,} delivered")

    def judge(self) -> tuple[FailoverVerdict, int]:
        """Return the verdict, and the number of lost messages that the servers reported."""
        parts = self._ask(f"/v1/topics/{TOPIC}")["partition_list"]
        final = [read_log(self._caller, part["partition"], part["high_watermark"]) for part in parts]
        reported = reported_losses(server.log_text() for server in self._servers)
        verdict = judge(self.record, final, reported, is_synchronous=self._pair.is_synchronous)
        return verdict, reported.total()

    def _await(self, messages: int, until: float) -> None:
        said = time.monotonic()
        while len(self.record.acked) < messages and time.monotonic() < until and not self._load.failures:
            time.sleep(0.1)
            if time.monotonic() > said + 10:
                said = time.monotonic()
                say(f"{len(self.record.acked):>9,} acknowledged  {self.record.delivered:>9,} delivered")

    def _promote(self, *, stops: bool) -> None:
        old = self._pair.primary
        promoted = self._pair.promote(stops=stops)
        try:
            seconds = eventually(lambda: self.record.serving_after(promoted), within=60, what="a publish succeeds")
        except AssertionError as error:
            raise RuntimeError(f"no publish succeeded after a promotion: {error}") from error
        assert seconds is not None
        self.serving.append(seconds)
        how = "stopped" if stops else "killed"
        say(f"promotion {len(self.serving)}: primary {how}, serving after {seconds:.1f} s")
        if seconds > SERVING_SECONDS:
            self.violations.append(f"promotion {len(self.serving)}: serving only after {seconds:.1f} s")
        self._pair.renew(old, stops=stops)

    def _is_drained(self) -> bool:
        lags = self._ask(f"/v1/groups/{GROUP}/lag")
        return bool(lags["lag"] == 0)

    def _ask(self, path: str) -> Any:
        reply = self._caller.call("GET", path)
        if reply.outcome != "ok":
            raise RuntimeError(f"{path}: {reply.reason}")
        return reply.data


def reported_losses(logs: Any) -> Counter[int]:
    """Return the number of lost messages by partition in the logs of servers."""
    found: Counter[int] = Counter()
    for text in logs:
        for line in text.splitlines():
            if '"messages_lost"' in line:
                event = json.loads(line)
                found[event["partition_id"] & ((1 << _PARTITION_BITS) - 1)] += event["messages"]
    return found


def _start(supervisor: Supervisor, url: str, number: int, port: int) -> Process:
    argv: Sequence[str] = [sys.executable, "-m", "lakelog", "serve", "--port", str(port), "--no-auth"]
    env = {"LAKELOG_DATABASE_URL": url, "LAKELOG_LOG_FORMAT": "json"}
    return supervisor.start(argv, env=env, name=f"server{number}", ready=f"http://127.0.0.1:{port}/readyz")


COMMAND = ProveCommand(
    name="failover",
    about="Promote the standby of two clusters under load, and compare what was acknowledged with the final log.",
    arguments=arguments,
    run=run,
)
