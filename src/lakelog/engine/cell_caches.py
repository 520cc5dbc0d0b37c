"""Everything that a process caches about the data in a cell, to be dropped with one call.

The data of a cell can be replaced by a promoted standby that had not received everything, or by a restore. Offsets and
journal versions may then have another meaning. Dropping a cache changes nothing in the cell. Running calls finish with
what they have read, or read again; data read before the drop is not cached, and no later decision uses it.
"""

from __future__ import annotations

from collections.abc import Callable


class CellCaches:
    """All caches of an engine. A component that starts to cache data of cells is added where this is created."""

    def __init__(self, *drops: Callable[[int], None]) -> None:
        """Create the set of caches. Each of `drops` clears what one component read from a cell, or more."""
        self._drops = drops

    def drop(self, cell: int) -> None:
        """Forget everything that was read from the cell.

        Args:
            cell: The cell's number.
        """
        for drop in self._drops:
            drop(cell)
