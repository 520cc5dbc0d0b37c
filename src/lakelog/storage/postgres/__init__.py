"""The storage protocols on PostgreSQL."""

from lakelog.storage.postgres.levels import raise_level
from lakelog.storage.postgres.migrate import migrate
from lakelog.storage.postgres.opening import open_catalog, open_cells, open_store, open_stores

__all__ = ["migrate", "open_catalog", "open_cells", "open_store", "open_stores", "raise_level"]
