"""An installation that a console can show: topics, groups in several states, marks, tokens and a run of a pipeline."""

from __future__ import annotations

from typing import Any

from tests.kit.fleet import Fleet


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
    fleet.request("POST", "/v1/marks", {"text": f"deploy 1.4{text}", "group": "billing"})
    fleet.request("POST", "/v1/tokens", {"name": f"script{text}", "rights": ["inspect"]})
    run = {"run_id": "0123456789abcdef", "topic": "orders", "host": f"spark-1{text}"[:100]}
    fleet.request("POST", "/v1/pipelines/tier/runs", run)


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


def _publish(fleet: Fleet, topic: str, messages: list[dict[str, Any]]) -> None:
    fleet.request("POST", f"/v1/topics/{topic}/messages", {"messages": messages})
