"""The storage protocols on PostgreSQL."""

from lakelog.storage.postgres.migrate import migrate
from lakelog.storage.postgres.opening import open_catalog, open_cells, open_store, open_stores

__all__ = ["migrate", "open_catalog", "open_cells", "open_store", "open_stores"]
