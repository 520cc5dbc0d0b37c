"""An installation that a console can show: topics, groups in several states, marks, tokens and a run of a pipeline."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Any

from lakelog.engine.history.samples import SampleBody, pack
from lakelog.storage.history import Sample
from lakelog.storage.postgres import open_catalog
from tests.kit.fleet import Fleet

HISTORY_MINUTES = 90


def fill(fleet: Fleet, text: str = "") -> None:
    """Fill an installation. `text` is part of every name that may hold any text."""
    fleet.request(
        "POST",
        "/v1/topics",
        {"name": "orders", "partitions": 4, "tags": [f"tag{text}"], "metadata": {f"team{text}": f"sales{text}"}},
    )
    fleet.create_topic("clicks", 40)
    for partition in range(4):
        _publish(fleet, "orders", [{"value": {"total": n}, "partition": partition} for n in range(30)])
    for partition in range(40):
        _publish(fleet, "clicks", [{"value": n, "partition": partition} for n in range(1 + partition % 7)])
    schema = {"type": "object", "title": f"Order{text}"}
    fleet.request("PUT", "/v1/topics/orders/schema", {"schema": schema})
    lease(fleet, "billing", f"worker{text}"[:150])
    lease(fleet, "shipping", "w-2")
    fleet.request("POST", "/v1/groups/shipping/pause", {})
    fleet.request("PATCH", "/v1/groups/shipping", {"filter": "value.note != '" + text.replace("'", "") + "'"})
    fleet.request(
        "POST",
        "/v1/groups/audit-trail/join",
        {"member_id": f"member{text}"[:150], "topics": ["orders"], "session_timeout_ms": 600_000},
    )
    bury(fleet, text)
    fleet.request("POST", "/v1/marks", {"text": f"deploy 1.4{text}", "group": "billing"})
    fleet.request("POST", "/v1/tokens", {"name": f"script{text}", "rights": ["inspect"]})
    run = {"run_id": "0123456789abcdef", "topic": "orders", "host": f"spark-1{text}"[:100]}
    fleet.request("POST", "/v1/pipelines/tier/runs", run)
    asyncio.run(_write_history(fleet.url))


def lease(fleet: Fleet, group: str, owner: str) -> Any:
    """Lease messages of `orders` for ten minutes."""
    consume = {
        "topic": "orders",
        "group": group,
        "owner": owner,
        "request_id": f"first of {group}",
        "start_from": "earliest",
        "max_messages": 5,
        "lease_ms": 600_000,
    }
    return fleet.request("POST", "/v1/consume", consume)


def bury(fleet: Fleet, text: str) -> None:
    """Let messages of `orders` fail: one is redriven and acked then, and the others stay dead letters."""
    path = "/v1/topics/orders/groups/billing/answers"
    trace = f'Traceback (most recent call last):\n  File "/app/shop/billing.py", line 88, in charge{text}\nE\n'
    reasons = [f"ValueError: order {n} has no total{text}" for n in range(4)] + ["ConnectionError: db-2 refused"] * 3
    for number, reason in enumerate(reasons):
        owner = f"worker-{number}{text}"[:150]
        consume = {"topic": "orders", "group": "billing", "owner": owner, "request_id": owner, "max_messages": 1}
        for verb in ("nack", "fail"):
            lease = fleet.request("POST", "/v1/consume", {**consume, "request_id": f"{verb} {number}"})["leases"][0]
            offsets = [message["offset"] for message in lease["messages"]]
            answer = {"verb": verb, "partition": lease["partition"], "token": lease["token"], "offsets": offsets}
            answer |= {"reason": reason, "traceback": trace} | ({"delay_ms": 0} if verb == "nack" else {})
            fleet.request("POST", path, {"owner": owner, "answers": [answer]})
    dead = fleet.request("GET", "/v1/groups/billing/dead-letters?limit=1")["dead_letters"][0]["id"]
    values = {dead: {"value": {"total": 0, "note": text}}}
    fleet.request("POST", "/v1/groups/billing/dead-letters/redrive", {"message_ids": [dead], "values": values})


def _publish(fleet: Fleet, topic: str, messages: list[dict[str, Any]]) -> None:
    fleet.request("POST", f"/v1/topics/{topic}/messages", {"messages": messages})


async def _write_history(url: str) -> None:
    """Write the samples of the last minutes: the lag rises for half an hour, and falls after that."""
    catalog = await open_catalog(url)
    try:
        (scope,) = {topic.scope.environment_id: topic.scope for topic in await catalog.topic_list_all()}.values()
        groups = await catalog.groups.group_list(scope)
        pairs = await catalog.groups.group_topic_list(*groups)
        now = int(time.time()) // 60
        finished = 0
        for minute in range(HISTORY_MINUTES, 0, -1):
            done = 0 if 40 < minute < 70 else 900 + round(300 * math.sin(minute / 5))
            finished += done
            lag = 1100 * (70 - minute) if 40 < minute < 70 else max(0, 33_000 - 1400 * (40 - minute))
            body = SampleBody(
                finished=finished,
                lag=lag if minute < 70 else 40,
                oldest_seconds=60 * (70 - minute) if 40 < minute < 70 else max(2, 1800 - 90 * abs(40 - minute)),
                leased=0 if done == 0 else 20,
                waiting=3,
                members=2,
                dead_letters=0,
                failed=0 if minute > 38 else 900 * max(0, minute - 30),
            )
            samples = [
                Sample(group_id=each.group_id, incarnation=topic.incarnation, body=pack(body)) for topic, each in pairs
            ]
            await catalog.samples.samples_write(now - minute, samples)
    finally:
        await catalog.close()
