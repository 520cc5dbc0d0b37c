"""The table of operations: every call of the API with its path, right, request, reply and summary.

The server (routing, authorisation, audit log, OpenAPI document, dispatch), both transports of the client and the list
in docs/reference/http.md are derived from it.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from lakelog.wire.operations import (
    audit,
    dead_letters,
    groups,
    iceberg,
    iceberg_catalog,
    inventory,
    lake,
    marks,
    outbox,
    pipelines,
    scheduled,
    tokens,
    topics,
    writes,
)
from lakelog.wire.operations.consuming import CONSUMING
from lakelog.wire.operations.messages import MESSAGES
from lakelog.wire.operations.operation import PUBLIC, Operation
from lakelog.wire.operations.server import SERVER

__all__ = ["OPERATIONS", "PUBLIC", "Operation"]


def _rows(module: ModuleType) -> list[Operation[Any, Any]]:
    """Return the operations that a module defines, in order."""
    return [each for each in vars(module).values() if isinstance(each, Operation)]


# Messages first: the router looks for them before all others.
OPERATIONS: tuple[Operation[Any, Any], ...] = (
    *MESSAGES,
    *_rows(topics),
    *_rows(inventory),
    *_rows(scheduled),
    *CONSUMING,
    *_rows(groups),
    *groups.SHORT_PATHS,
    *_rows(dead_letters),
    *_rows(lake),
    *_rows(iceberg),
    *_rows(iceberg_catalog),
    *_rows(writes),
    *_rows(pipelines),
    *_rows(outbox),
    *_rows(tokens),
    *_rows(audit),
    *_rows(marks),
    *SERVER,
)
