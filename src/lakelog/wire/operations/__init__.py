"""The table of operations: every call of the API with its path, right, request, reply and summary.

The server (routing, authorisation, audit log, OpenAPI document, dispatch), both transports of the client and the list
in docs/reference/http.md are derived from it.
"""

from __future__ import annotations

from typing import Any

from lakelog.wire.operations.consuming import CONSUMING
from lakelog.wire.operations.dead_letters import DEAD_LETTERS
from lakelog.wire.operations.groups import GROUPS
from lakelog.wire.operations.lake import LAKE
from lakelog.wire.operations.messages import MESSAGES
from lakelog.wire.operations.operation import PUBLIC, Operation
from lakelog.wire.operations.pipelines import PIPELINES
from lakelog.wire.operations.server import SERVER
from lakelog.wire.operations.topics import TOPICS
from lakelog.wire.operations.writes import WRITES

__all__ = ["OPERATIONS", "PUBLIC", "Operation"]

# Messages first: the router looks for them before all others.
OPERATIONS: tuple[Operation[Any, Any], ...] = (
    *MESSAGES,
    *TOPICS,
    *CONSUMING,
    *GROUPS,
    *DEAD_LETTERS,
    *LAKE,
    *WRITES,
    *PIPELINES,
    *SERVER,
)
