"""The storage protocols in memory, for tests and `memory://`.

Each method yields to the event loop once, at its start, and then runs without awaiting, so it is atomic and callers
still interleave. Nothing is on disk: users of the same object share the data. A store belongs to one event loop, not to
threads.
"""

from lakelog.storage.memory.catalog import MemoryCatalog
from lakelog.storage.memory.clock import utcnow
from lakelog.storage.memory.partitions import MemoryStore

__all__ = ["MemoryCatalog", "MemoryStore", "utcnow"]
