"""outbox-open-transaction: transactions that publish through an outbox while another one stays open, and without it.

The open transaction has published as well, so that its message is missing from what the relay has read. The figure is
the slowest hundredth of the commits; the latency up to a consumer is noted. The leg without it takes a fifth of the
time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import msgspec
import psycopg

from benchmarks.environment import Environment
from benchmarks.harness import OURS, Benchmark, BenchmarkPlan, Leg, Measured
from benchmarks.outbox_latency import CONNECTIONS, MISSING, relayed
from lakelog.storage.postgres import install_outbox
from tests.kit.size import Size


@contextmanager
def _legs(environment: Environment, plan: BenchmarkPlan) -> Iterator[Mapping[str, Leg]]:
    environment.notes |= {"transactions_a_second": plan.messages / plan.seconds, "connections": CONNECTIONS}
    short = replace(plan, messages=plan.messages // 5, seconds=plan.seconds / 5)
    with environment.peer_database() as url:
        asyncio.run(install_outbox(url))
        with environment.serve({"LAKELOG_OUTBOX_URLS": msgspec.json.encode([url]).decode()}) as served:

            def leg(plan: BenchmarkPlan) -> Measured:
                found = relayed(served, url, plan)
                return replace(found, figure=found.notes["commit_p99_ms"])

            def open_transaction() -> Measured:
                with psycopg.connect(url) as connection:
                    connection.execute(f"select lakelog_outbox.publish('{MISSING}', '1'::jsonb)")
                    found = leg(plan)
                    connection.rollback()
                return found

            yield {"undisturbed": lambda: leg(short), OURS: open_transaction}


BENCHMARK = Benchmark(
    name="outbox-open-transaction",
    about="transactions that publish through an outbox while another stays open, compared with none open",
    unit="ms (p99 of commits)",
    legs=_legs,
    plans={
        Size.CI: BenchmarkPlan(size=Size.CI, rounds=1, messages=500, seconds=5),
        Size.FULL: BenchmarkPlan(size=Size.FULL, rounds=1, messages=600_000, seconds=600),
    },
    # At most 1.1 times as long.
    targets={"undisturbed": 0.909},
    less_is_better=True,
)
