"""The operation that lists what an environment has."""

from __future__ import annotations

from lakelog.model import inventory as model
from lakelog.wire.operations.operation import SEE, read

INVENTORY = read(
    "inventory",
    "/v1/inventory",
    "List the names of all topics and groups",
    model.InventoryRequest,
    model.Inventory,
    rights=SEE,
    problems=(),
)
