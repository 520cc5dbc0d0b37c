"""Everything that a process remembers of the data in a cell, to be dropped with one call.

A cell's data can be replaced: by a standby that was promoted and had not received everything, or by a restore. Offsets
and journal versions may then mean something else than before. Dropping forgets; it changes nothing in the cell. Calls
under way end with what they have read, or read again: what they read before the drop is not remembered, and nothing is
decided on it afterwards.
"""

from __future__ import annotations

from collections.abc import Callable


class CellCaches:
    """All caches of an engine. A component that begins to remember data of cells is added where this is made."""

    def __init__(self, *drops: Callable[[int], None]) -> None:
        """Each of `drops` forgets what one component read from a cell, or more than that."""
        self._drops = drops

    def drop(self, cell: int) -> None:
        """Forget everything that was read from the cell.

        Args:
            cell: The cell's number.
        """
        for drop in self._drops:
            drop(cell)
