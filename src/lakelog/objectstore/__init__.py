"""Object stores: a folder, an S3 bucket, or memory. They do not interpret the content of objects."""

from lakelog.objectstore.opening import check_shared, open_store
from lakelog.objectstore.store import ObjectStore, StoredObject

__all__ = ["ObjectStore", "StoredObject", "check_shared", "open_store"]
