"""Background agents, named by what they do. One process runs each of them in a cell; all steps can be repeated."""

from lakelog.maintenance.maintenance import RETENTION_SECONDS, Maintenance
from lakelog.maintenance.outbox_relays import OutboxRelays

__all__ = ["RETENTION_SECONDS", "Maintenance", "OutboxRelays"]
