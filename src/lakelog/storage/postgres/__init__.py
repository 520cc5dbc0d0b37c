"""The storage protocols on PostgreSQL."""

from lakelog.storage.postgres.levels import raise_level
from lakelog.storage.postgres.migrate import migrate
from lakelog.storage.postgres.opening import open_catalog, open_cells, open_store, open_stores
from lakelog.storage.postgres.outbox_source import PostgresOutbox, install_outbox

__all__ = [
    "PostgresOutbox",
    "install_outbox",
    "migrate",
    "open_catalog",
    "open_cells",
    "open_store",
    "open_stores",
    "raise_level",
]
