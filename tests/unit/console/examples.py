"""How to call each page and each action of the console, for tests that call all of them."""

from __future__ import annotations

from collections.abc import Mapping

PATHS: Mapping[str, str] = {
    "overview": "",
    "topics": "topics",
    "topic": "topics/orders",
    "messages": "topics/orders/messages",
    "message": "m/1-0-1",
    "dead_letters": "groups/billing/dead",
    "redrive": "groups/billing/redrive?edit=set&field=total&value=17",
    "groups": "groups",
    "group": "groups/billing",
    "seek": "groups/billing/seek?topic=orders&position=earliest",
    "pipelines": "pipelines",
    "servers": "servers",
    "tokens": "tokens",
    "audit": "audit",
    "marks": "marks",
    "names": "names",
}
"""The path of each page, by its name."""

FORMS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "pause_topic": ("topics/orders/pause", {}),
    "resume_topic": ("topics/orders/resume", {}),
    "pause": ("groups/billing/pause", {}),
    "resume": ("groups/billing/resume", {}),
    "seek": ("groups/billing/seek", {"topic": "orders", "position": "earliest"}),
    "skip": ("groups/billing/skip", {"topic": "orders", "partition": "0", "offset": "3"}),
    "alter": ("groups/billing/alter", {"window": "100"}),
    "redrive": (
        "groups/billing/redrive",
        {"where": "error like 'V%'", "edit": "set", "field": "total", "value": "17", "until": "2100-01-01T00:00:00Z"},
    ),
    "discard_dead": ("groups/billing/dead/discard", {"where": "error like 'K%'"}),
    "create_token": ("tokens", {"name": "for a script", "token": "TOKEN", "right_read": "yes", "hours": "1"}),
    "revoke_token": ("tokens/CHILD/revoke", {}),
    "create_mark": ("marks", {"text": "deploy 1.4"}),
}
"""The path and the fields of each action, by its name. They succeed with the right to manage.

`TOKEN` is the token of the installation, and `CHILD` the id of its child.
"""
