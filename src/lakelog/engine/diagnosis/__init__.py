"""Checks of an installation: pure functions from measured values to findings, each with what to do. They do no I/O."""

from lakelog.engine.diagnosis.database_checks import check_database, check_outbox_database
from lakelog.engine.diagnosis.installation_checks import (
    check_cells,
    check_object_store,
    check_server,
    reachable,
    unreachable,
)

__all__ = [
    "check_cells",
    "check_database",
    "check_object_store",
    "check_outbox_database",
    "check_server",
    "reachable",
    "unreachable",
]
