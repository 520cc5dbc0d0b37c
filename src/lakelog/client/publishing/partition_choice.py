"""The size of a batch, and the partitions of messages without a key. `columns` encodes the batches."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MAX_BATCH_BYTES = 6 << 20
"""The largest size of a batch before compression. Data that cannot be compressed still fits into one body."""
MESSAGE_OVERHEAD = 100
KEYLESS_BLOCK = 1000
"""The least number of consecutive messages without a key in one partition. Small batches cost servers more."""


@dataclass(slots=True)
class KeylessPartitioner:
    """Chooses the partitions of messages without a key."""

    counter: Iterator[int] = field(default_factory=lambda: itertools.count(secrets.randbelow(1 << 16)))

    def one(self, partitions: int) -> int:
        return next(self.counter) % partitions

    def many(self, count: int, partitions: int) -> npt.NDArray[np.int32]:
        import numpy as np

        block = max(KEYLESS_BLOCK, -(-count // partitions))
        blocks = -(-count // block)
        firsts = [next(self.counter) % partitions for _ in range(blocks)]
        return np.repeat(np.array(firsts, np.int32), block)[:count]
