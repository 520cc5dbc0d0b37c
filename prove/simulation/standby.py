"""A standby of a simulated cell: a copy of what it received, which can replace the cell's data."""

from __future__ import annotations

import copy
from typing import Any

from lakelog.coordinator.leasing.state import begin
from lakelog.engine.leasing.journal import replay_rows
from lakelog.storage.groups import JournalRequest
from lakelog.storage.memory import MemoryStore
from prove.simulation.loop import driven

_DATA: dict[str, tuple[str, ...]] = {
    "": ("_partitions", "_deleted", "_closed", "_reservations"),
    "_hot": ("active", "created_at", "tables", "_kept"),
    "groups": ("_journals", "_members", "_seen", "_dead"),
    "cold": ("_segments",),
    "staging": ("_staged", "_marks"),
}
"""The attributes with data, by part of the store."""


class StandbyCopy:
    """The data of a store at one time. `promote` replaces the store with it: later writes are lost."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        # In one copy, so that what two parts share is shared again.
        self._received = copy.deepcopy([self._data(owner, names) for owner, names in _DATA.items()])

    def promote(self) -> dict[int, int]:
        """Replace the data, and begin the next timeline. Return the token of the last lease by partition.

        Leases with a lower token were granted before the copy was made, even if their workers heard of it later.
        """
        for owner, received in zip(_DATA, self._received, strict=True):
            vars(self._part(owner)).update(received)
        self._store.promoted()
        tokens: dict[int, int] = {}
        for group_id, pid in self._store.groups._journals:
            (read,) = driven(self._store.groups.journals_read([JournalRequest(group_id=group_id, pid=pid)]))
            state, _ = replay_rows(begin(0), read)
            tokens[pid] = max(tokens.get(pid, 0), state.last_token)
        return tokens

    def _part(self, owner: str) -> Any:
        return getattr(self._store, owner) if owner else self._store

    def _data(self, owner: str, names: tuple[str, ...]) -> dict[str, Any]:
        part = self._part(owner)
        return {name: vars(part)[name] for name in names}
