"""Where files are kept: a folder, an S3 bucket, or memory. It knows nothing of what is in them."""

from lakelog.objectstore.opening import check_shared, open_store
from lakelog.objectstore.store import ObjectStore, StoredObject

__all__ = ["ObjectStore", "StoredObject", "check_shared", "open_store"]
