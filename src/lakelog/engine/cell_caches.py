"""The caches of a process that hold data of a cell, and one call that drops them all.

The data of a cell can be replaced by a promoted standby that had not received everything, or by a restore. Offsets and
journal versions may then have another meaning. Dropping a cache changes nothing in the cell. Running calls finish with
what they have read, or read again; data read before the drop is not cached, and no later decision uses it.
"""

from __future__ import annotations

from collections.abc import Callable


class CellCaches:
    """All caches of an engine. Add every component that caches data of cells where this object is created."""

    def __init__(self, *drops: Callable[[int], None]) -> None:
        """Create the set of caches. Each function of `drops` clears at least what one component read from a cell."""
        self._drops = drops

    def drop(self, cell: int) -> None:
        """Forget everything that was read from the cell.

        Args:
            cell: The cell's number.
        """
        for drop in self._drops:
            drop(cell)
