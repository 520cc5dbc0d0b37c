"""The storage seams in memory: the twins that tests and `memory://` use.

Each verb yields to the event loop once, at its start, and then works without awaiting: it is atomic, and callers still
interleave. One event loop, nothing on disk: whoever shares the object shares the data. Not for several threads.
"""

from lakelog.storage.memory.catalog import MemoryCatalog
from lakelog.storage.memory.clock import utcnow
from lakelog.storage.memory.partitions import MemoryStore

__all__ = ["MemoryCatalog", "MemoryStore", "utcnow"]
